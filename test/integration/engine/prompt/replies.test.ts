/**
 * Replies as each family’s template writes them: a thought, some text and calls. They are parsed alike wherever they
 * are cut.
 */
import { Ajv } from 'ajv';
import t from 'tap';
import { isDeepStrictEqual } from 'node:util';
import { callGrammar } from '../../../../engine/grammar/calls.js';
import { ReplyText } from '../../../../engine/output/reply-text.js';
import { chatPrompt, type PromptParts } from '../../../../engine/prompt/chat-prompt.js';
import type { ReplyFormat } from '../../../../engine/protocol/reply-format.js';
import { bundleFormats } from '../../../support/bundle-formats.js';
import { Gbnf, seeded } from '../../../support/gbnf.js';
import { fakeVocabulary } from '../../../support/fake-vocabulary.js';
import { rounds } from '../../../support/long-form.js';
import { ANSWER, replyOf, USER, writtenTurn } from '../../../support/template-replies.js';

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

/** What the grammar takes that is in force from a call's mark on: the reply's calls. */
function held({ calls, grammar }: ReplyFormat, reply: string): string {
  if (grammar !== undefined) return new Gbnf(grammar.gbnf).beginning(reply);
  return new Gbnf(callGrammar(calls?.gbnf ?? '')).beginning(reply.slice(reply.indexOf(calls?.syntax.mark ?? '')));
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

/** Replies of models whose template omits earlier calls from the prompt, or writes them differently than the model. */
const RECORDED: Readonly<Record<string, string>> = {
  'LFM2-8B-A1B':
    'Some words.<|tool_call_start|>[get_weather(city="Zürich \\"HB\\"\\n\\n日本 </tool_call> }", days=[1, 2]), go()]<|tool_call_end|>',
  'Reka-Edge':
    'I must look.</think>\n\nSome words.<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich \\"HB\\"\\n\\n日本 </tool_call> }", "days": [1, 2]}}\n</tool_call><tool_call>\n{"name": "go", "arguments": {}}\n</tool_call>',
  'ibm-granite-granite-3.3-2B-Instruct':
    '<think>I must look.</think><response>Some words.</response><|tool_call|>[{"name": "get_weather", "arguments": {"city": "Zürich \\"HB\\"\\n\\n日本 </tool_call> }", "days": [1, 2]}}, {"name": "go", "arguments": {}}]',
};

const formats = await bundleFormats(fakeVocabulary());

/** The format of a reply to a request with tools. */
function formatOf(parts: PromptParts, required = false): ReplyFormat | undefined {
  const calls = { required, parallel: true };
  const made = chatPrompt(parts, { messages: [USER], tools: TOOLS }, { ...ANSWER, calls }, 1e6);
  return made.kind === 'prompt' && made.format?.calls !== undefined ? made.format : undefined;
}

t.test('replies of each family, cut at every byte', (t) => {
  const unwritten: string[] = [];
  for (const [name, parts] of formats) {
    // The JSON instruction is the sidecar’s: no template writes calls so.
    if (parts.template.calls?.answer !== undefined) continue;
    const calls = parts.template.calls?.next === undefined ? CALLS.slice(0, 1) : CALLS;
    const format = formatOf(parts);
    if (format === undefined) {
      t.fail(`${name} has no calls`);
      continue;
    }
    const turn = writtenTurn(parts, TOOLS, calls, '日本');
    if (turn === undefined) unwritten.push(name);
    const reply = turn === undefined ? (RECORDED[name] ?? '') : replyOf(format, turn);
    const bytes = Buffer.from(reply);
    const whole = read(format, [bytes]);
    t.same(
      whole.calls.map((call) => [call.name, parsed(call.arguments)]),
      calls.map((call) => [call.name, call.arguments]),
      `${name}: the calls`,
    );
    t.match(whole.reasoning, /^(I must look\.)?$/, `${name}: the thought`);
    t.notMatch(whole.content, /I must look|日本/, `${name}: the text`);
    for (const call of calls)
      t.match(held(format, reply), call.name, `${name}: the grammar takes the call of ${call.name}`);
    const different = CUTS.filter((cut) => !isDeepStrictEqual(read(format, cutUp(reply, cut)), whole));
    t.same(different, [], `${name}: cuts that matter`);
  }
  t.same(unwritten, Object.keys(RECORDED), 'each of the others is recorded');
  t.end();
});

/** Parameters of several kinds, whose texts the grammar of each notation writes in its own way. */
const LOOK = {
  type: 'object',
  properties: {
    at: { type: 'string', enum: ['here', '"there" {e}'] },
    day: { type: 'string', format: 'date' },
    note: { type: 'string', maxLength: 6 },
    deep: {
      type: 'object',
      properties: { on: { type: 'boolean' } },
      required: ['on'],
      additionalProperties: false,
    },
  },
  required: ['at', 'deep'],
  additionalProperties: false,
};
const NOTHING = { type: 'object', properties: {}, additionalProperties: false };
const FORCED = { look: LOOK, go: NOTHING };

t.test('whatever the grammar of required calls allows is calls that are valid by the tools’ schemas', (t) => {
  const ajv = new Ajv({ strict: false, formats: { date: /^\d{4}-\d\d-\d\d$/ } });
  const isValid = new Map(Object.entries(FORCED).map(([name, parameters]) => [name, ajv.compile(parameters)]));
  const tools = Object.entries(FORCED).map(([name, parameters]) => {
    return { type: 'function', function: { name, description: 'A tool', parameters } };
  });
  for (const [family, parts] of formats) {
    for (const name of [undefined, 'look']) {
      const calls = { required: true, parallel: name === undefined, ...(name !== undefined && { name }) };
      const made = chatPrompt(parts, { messages: [USER], tools }, { ...ANSWER, reasoningEffort: 'none', calls }, 1e6);
      const constrained = made.kind === 'prompt' ? made.format : undefined;
      if (constrained?.grammar === undefined) throw new Error(`${family}: not constrained`);
      const grammar = new Gbnf(constrained.grammar.gbnf);
      // A thought that the prompt has begun has ended before.
      const { thought } = constrained;
      const format = { ...constrained, ...(thought && { thought: { ...thought, open: false } }) };
      const random = seeded(1);
      let several = false;
      const faults: string[] = [];
      for (let round = 0; round < rounds({ short: 12, long: 100 }); round += 1) {
        const text = grammar.write(random);
        const reply = read(format, cutUp(text, CUTS[round % CUTS.length] ?? { size: 1, from: 0 }));
        several ||= reply.calls.length > 1;
        const wrong = reply.calls.filter((call) => isValid.get(call.name)?.(parsed(call.arguments)) !== true);
        const isOther = name !== undefined && reply.calls.some((call) => call.name !== name);
        if (reply.calls.length === 0 || reply.content !== '' || wrong.length > 0 || isOther)
          faults.push(JSON.stringify({ text, reply }));
      }
      t.same(faults, [], `${family}: what is wrong`);
      t.equal(several, name === undefined && parts.template.calls?.next !== undefined, `${family}: one or several`);
    }
  }
  t.end();
});

/** Models that call within a thought now and then; the first of each format. */
const UNENDED = [
  'ByteDance-Seed-OSS',
  'Cohere2MoE',
  'GLM-4.6',
  'GLM-4.7-Flash',
  'Kimi-K2-Thinking',
  'NVIDIA-Nemotron-3-Nano-30B-A3B-BF16',
  'StepFun3.5-Flash',
  'deepseek-ai-DeepSeek-V3.2',
  'deepseek-ai-DeepSeek-V4-Flash-0731',
  'google-gemma-4-31B-it-interleaved',
];

t.test('a call within a thought that was not ended', (t) => {
  for (const name of UNENDED) {
    const parts = formats.get(name);
    const format = parts && formatOf(parts);
    const turn = parts && writtenTurn(parts, TOOLS, CALLS, '日本');
    if (parts === undefined || format?.thought === undefined || turn === undefined) {
      t.fail(name);
      continue;
    }
    const { open, starts } = format.thought;
    const begun = open ? '' : (starts[0] ?? '');
    const [own = ''] = turn.slice(turn.indexOf(format.calls?.syntax.mark ?? '')).split('tool-result');
    const reply = `${begun}I will <tool_call> go.\n${own}`;
    const whole = read(format, [Buffer.from(reply)]);
    t.equal(whole.reasoning, 'I will <tool_call> go.', name);
    t.same(
      whole.calls.map((call) => [call.name, parsed(call.arguments)]),
      CALLS.map((call) => [call.name, call.arguments]),
      `${name}: the calls`,
    );
    const different = CUTS.filter((cut) => !isDeepStrictEqual(read(format, cutUp(reply, cut)), whole));
    t.same(different, [], `${name}: cuts that matter`);
    t.same(formatOf(parts, true)?.thought?.implicitEnds, [], `${name}: not where the grammar takes no call there`);
  }
  t.end();
});

t.test('a thought may mention how calls begin', (t) => {
  for (const [name, mention] of [
    ['GLM-4.6', 'Could I use `<tool_call>get_weather`? <tool_call>get_weatherman.'],
    ['mistralai-Ministral-3-14B-Reasoning-2512', 'They ask what [TOOL_CALLS] means.'],
    ['NVIDIA-Nemotron-3-Nano-30B-A3B-BF16', 'It begins with <tool_call>\n<function=get_weather and goes on.'],
  ] as const) {
    const parts = formats.get(name);
    const format = parts && formatOf(parts);
    if (format?.thought === undefined) {
      t.fail(`${name}: ${[...formats.keys()].join(' ')}`);
      continue;
    }
    const { open, starts, ends } = format.thought;
    const reply = `${open ? '' : (starts[0] ?? '')}${mention}${ends[0] ?? ''}Hello!`;
    t.match(read(format, [Buffer.from(reply)]), { reasoning: mention, content: 'Hello!', calls: [] }, name);
  }
  t.end();
});

t.test('a second thought of Gemma 4, in front of its call', (t) => {
  const parts = formats.get('google-gemma-4-31B-it-interleaved');
  const format = parts && formatOf(parts);
  const call = '<|tool_call>call:get_weather{city:<|"|><channel|> <|channel>thought<|"|>}<tool_call|>';
  const reply = `<|channel>thought\nOne.<channel|>Words.<|channel>thought\nTwo.<channel|>${call}`;
  const expected = {
    reasoning: 'One.\nTwo.',
    content: 'Words.',
    calls: [{ name: 'get_weather', arguments: '{"city": "<channel|> <|channel>thought"}' }],
  };
  for (const cut of CUTS) t.same(format && read(format, cutUp(reply, cut)), expected);
  t.end();
});

t.test('a call of Qwen3-Coder without the first tag', (t) => {
  const parts = formats.get('Qwen3-Coder');
  const format = parts && formatOf(parts);
  if (format?.calls?.gbnf === undefined) throw new Error('no format');
  const call = '<function=go>\n</function>\n</tool_call>';
  t.equal(new Gbnf(callGrammar(format.calls.gbnf)).reads(call), 'whole');
  const after = '<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>';
  const calls = [
    { name: 'go', arguments: '{}' },
    { name: 'get_weather', arguments: '{"city": "Bern"}' },
  ];
  const no = 'No <function=unknown>\n or #include <functional> or <function=go';
  for (const cut of CUTS) {
    const made = read(format, cutUp(`I will look.\n${call}\n${after}`, cut));
    t.same(made, { reasoning: '', content: 'I will look.', calls });
    t.same(read(format, cutUp(no, cut)), { reasoning: '', content: no, calls: [] }, 'no call');
  }
  t.end();
});

t.test('the draft of a call within a thought stays there', (t) => {
  for (const name of ['Reka-Edge', 'openai-gpt-oss-120b', 'upstage-Solar-Open-100B']) {
    const parts = formats.get(name);
    t.same(parts && formatOf(parts)?.thought?.implicitEnds, [], name);
  }
  t.end();
});
