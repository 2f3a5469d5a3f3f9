/**
 * Replies as each family’s template writes them: a thought, some text and calls. They are parsed alike wherever they
 * are cut.
 */
import t from 'tap';
import { isDeepStrictEqual } from 'node:util';
import { ReplyText } from '../../../../engine/output/reply-text.js';
import { chatPrompt, type PromptParts } from '../../../../engine/prompt/chat-prompt.js';
import type { PromptConversation } from '../../../../engine/prompt/conversation.js';
import type { ReplyFormat } from '../../../../engine/protocol/reply-format.js';
import { bundleFormats } from '../../../support/bundle-formats.js';
import { fakeVocabulary } from '../../../support/fake-vocabulary.js';

const USER = { role: 'user', content: 'user-words' };
const TOOLS = ['get_weather', 'go'].map((name) => ({
  type: 'function',
  function: {
    name,
    description: 'A tool',
    parameters: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'array' } } },
  },
}));
const CALLS = [
  { name: 'get_weather', arguments: { city: 'Zürich "HB"\n\n日本 </tool_call> }', days: [1, 2] } },
  { name: 'go', arguments: {} },
];
const ANSWER = { addGenerationPrompt: true, reasoningEffort: 'high' };

function conversation(calls: typeof CALLS): PromptConversation {
  const turn = {
    role: 'assistant',
    content: 'Some words.',
    reasoning_content: 'I must look.',
    tool_calls: calls.map((call, i) => ({
      id: `call0000${i}`,
      type: 'function',
      function: { name: call.name, arguments: JSON.stringify(call.arguments) },
    })),
  };
  const results = calls.map((_, i) => ({ role: 'tool', tool_call_id: `call0000${i}`, content: 'tool-result' }));
  return { tools: TOOLS, messages: [USER, turn, ...results] };
}

/**
 * The text of a rendered conversation after the reply’s beginning, up to the first result; undefined: it does not have
 * the calls.
 */
function replyIn({ template }: PromptParts, calls: typeof CALLS): string | undefined {
  const prompt = template.render({ tools: TOOLS, messages: [USER] }, ANSWER);
  const rendered = template.render(conversation(calls), { ...ANSWER, addGenerationPrompt: false });
  if (prompt.kind === 'failed' || rendered.kind === 'failed' || !rendered.text.includes('日本')) return undefined;
  const { text } = rendered;
  let common = 0;
  while (common < prompt.text.length && prompt.text[common] === text[common]) common += 1;
  const from = text.slice(0, common).replace(/<[^<>]*$/, '').length;
  return text.slice(from, text.indexOf('tool-result', from));
}

interface Read {
  reasoning: string;
  content: string;
  readonly calls: { name: string; arguments: string }[];
}

function read(format: ReplyFormat, pieces: readonly Uint8Array[]): Read {
  const text = new ReplyText([], format);
  const all: Read = { reasoning: '', content: '', calls: [] };
  for (const part of [...pieces.map((piece) => text.push(piece)), text.end()]) {
    all.reasoning += part.reasoning;
    all.content += part.content;
    for (const { name, arguments: more } of part.calls) {
      if (name !== undefined) all.calls.push({ name, arguments: '' });
      const last = all.calls.at(-1);
      if (last) last.arguments += more;
    }
  }
  return all;
}

/** Pieces of so many bytes, the first one shorter by `from`: together they cut at every byte. */
const CUTS = [1, 2, 3, 5, 8].flatMap((size) => Array.from({ length: size }, (_, from) => ({ size, from })));

/** A reply in such pieces; control tokens are never parts of longer ones. */
function cutUp(reply: string, { size, from }: (typeof CUTS)[number]): Uint8Array[] {
  return reply.split(/(<\|\w+\|>)/).flatMap((text, i) => {
    const bytes = Buffer.from(text);
    if (i % 2 === 1) return [bytes];
    const ends = Array.from({ length: Math.ceil((bytes.length + from) / size) }, (_, n) => (n + 1) * size - from);
    return ends.map((end) => bytes.subarray(Math.max(0, end - size), Math.min(end, bytes.length)));
  });
}

/** Unchanged if it is not JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Templates that omit earlier calls from the prompt, or write them differently than the model. */
const UNWRITTEN = [
  'LFM2-8B-A1B',
  'Reka-Edge',
  'deepseek-ai-DeepSeek-R1-Distill-Llama-8B',
  'ibm-granite-granite-3.3-2B-Instruct',
];

const formats = await bundleFormats(fakeVocabulary());

t.test('replies of each family, cut at every byte', (t) => {
  const unwritten: string[] = [];
  for (const [name, parts] of formats) {
    // The JSON instruction is the sidecar’s: no template writes calls so.
    if (parts.template.calls?.answer !== undefined) continue;
    const calls = parts.template.calls?.next === undefined ? CALLS.slice(0, 1) : CALLS;
    const reply = replyIn(parts, calls);
    const made = chatPrompt(
      parts,
      { messages: [USER], tools: TOOLS },
      { ...ANSWER, calls: { required: false, parallel: true } },
      1e6,
    );
    if (reply === undefined || made.kind !== 'prompt' || made.format?.calls === undefined) {
      unwritten.push(name);
      continue;
    }
    const { format } = made;
    // If the prompt begins a thought, a model ends it; some templates omit that end from earlier turns.
    const { open = false, ends = [] } = format.thought ?? {};
    const thought = open && !ends.some((end) => reply.includes(end)) ? `I must look.${ends[0] ?? ''}` : '';
    // After the end of a turn nothing is generated.
    const [turn = ''] = reply.split(format.thought?.close ?? 'tool-result');
    const bytes = Buffer.from(thought + turn);
    const whole = read(format, [bytes]);
    t.same(
      whole.calls.map((call) => [call.name, parsed(call.arguments)]),
      calls.map((call) => [call.name, call.arguments]),
      `${name}: the calls`,
    );
    t.match(whole.reasoning, /^(I must look\.)?$/, `${name}: the thought`);
    t.notMatch(whole.content, /I must look|日本/, `${name}: the text`);
    const different = CUTS.filter((cut) => !isDeepStrictEqual(read(format, cutUp(thought + turn, cut)), whole));
    t.same(different, [], `${name}: cuts that matter`);
  }
  t.same(unwritten, UNWRITTEN);
  t.end();
});
