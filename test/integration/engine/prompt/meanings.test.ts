/**
 * Over all templates of the bundle: conversations of different meaning have different prompts, nothing that a caller sent is
 * missing in a prompt, and a prompt ends with what begins a turn of the model.
 */
import t from 'tap';
import { promptPieces, type PromptParts, type ReplyOptions } from '../../../../engine/prompt/chat-prompt.js';
import type { PromptMessage } from '../../../../engine/prompt/conversation.js';
import { makePromptParts } from '../../../../engine/prompt/prompt-parts.js';
import { bundleTemplates } from '../../../support/bundle-formats.js';
import { bundleTemplate, sharedVocabulary } from '../../../support/prompt-models.js';

const tool = (name: string) => ({
  type: 'function',
  function: {
    name,
    description: 'A tool',
    parameters: { type: 'object', properties: { key: { type: 'string', description: 'A text' } }, required: ['key'] },
  },
});
const TOOLS = [tool('look'), tool('wander')];
const user = (content: string): PromptMessage => ({ role: 'user', content });
const said = (content: string): PromptMessage => ({ role: 'assistant', content });
/** Calls by their ids: `look` has ids that begin with l, `wander` with w. */
const calls = (...ids: readonly string[]) => ({
  role: 'assistant',
  content: null,
  tool_calls: ids.map((id) => ({
    id,
    type: 'function',
    function: {
      name: id.startsWith('l') ? 'look' : 'wander',
      arguments: JSON.stringify({ key: `${id[1] ?? ''}-text` }),
    },
  })),
});
const result = (id: string, content: string): PromptMessage => ({ role: 'tool', tool_call_id: id, content });

const LOOK = 'la_0123456789';
const WANDER = 'wb_0123456789';
const NEXT = user('next-text');

/** Each has another meaning than all others. */
const DIFFERENT: Readonly<Record<string, readonly PromptMessage[]>> = {
  both: [calls(LOOK, WANDER), result(LOOK, 'hot-text'), result(WANDER, 'cold-text'), NEXT],
  'both the other way': [calls(LOOK, WANDER), result(LOOK, 'cold-text'), result(WANDER, 'hot-text'), NEXT],
  'the first alone': [calls(LOOK, WANDER), result(LOOK, 'hot-text'), NEXT],
  'the second alone': [calls(LOOK, WANDER), result(WANDER, 'hot-text'), NEXT],
  none: [calls(LOOK, WANDER), NEXT],
  'one call': [calls(LOOK), result(LOOK, 'hot-text'), NEXT],
  'the other call': [calls(WANDER), result(WANDER, 'hot-text'), NEXT],
  'the calls in the other order': [calls(WANDER, LOOK), result(LOOK, 'hot-text'), result(WANDER, 'cold-text'), NEXT],
  'one function twice': [
    calls(LOOK, 'lc_0123456789'),
    result(LOOK, 'hot-text'),
    result('lc_0123456789', 'cold-text'),
    NEXT,
  ],
  'one function twice, the other way': [
    calls(LOOK, 'lc_0123456789'),
    result(LOOK, 'cold-text'),
    result('lc_0123456789', 'hot-text'),
    NEXT,
  ],
  'an answer between': [
    calls(LOOK, WANDER),
    result(LOOK, 'hot-text'),
    result(WANDER, 'cold-text'),
    said('fine-text'),
    NEXT,
  ],
  'no calls': [said('fine-text'), NEXT],
};

/** Pairs of one meaning: the results of the first are as the second has them. */
const SAME: readonly (readonly [string, readonly PromptMessage[], readonly PromptMessage[]])[] = [
  [
    'results in another order than their calls',
    [calls(LOOK, WANDER), result(WANDER, 'cold-text'), result(LOOK, 'hot-text'), NEXT],
    DIFFERENT['both'] ?? [],
  ],
  [
    'a user’s message before a result',
    [calls(LOOK), NEXT, result(LOOK, 'hot-text')],
    [calls(LOOK), result(LOOK, 'hot-text'), NEXT],
  ],
];

const loaded = new Map<string, PromptParts>();
for (const name of await bundleTemplates()) {
  const made = makePromptParts(await sharedVocabulary('qwen2'), { chatTemplate: await bundleTemplate(name) });
  if (made.kind === 'ok') loaded.set(name, made.parts);
}

function eachTemplate(use: (name: string, parts: PromptParts) => void): void {
  for (const [name, parts] of loaded) use(name, parts);
}

function prompt(parts: PromptParts, messages: readonly PromptMessage[], offered = true) {
  const options = { addGenerationPrompt: true, ...(offered && { calls: { required: false, parallel: true } }) };
  const made = promptPieces(parts, { messages, ...(offered && { tools: TOOLS }) }, options);
  return made.kind === 'pieces' ? made.pieces.join('') : made;
}

t.test('conversations with calls that differ in meaning have different prompts', (t) => {
  const faults: string[] = [];
  let templates = 0;
  eachTemplate((name, parts) => {
    templates += 1;
    for (const offered of [true, false]) {
      const rendered = new Map<string, string>();
      // Templates write earlier calls alike with and without tools.
      for (const [title, messages] of Object.entries(DIFFERENT).slice(0, offered ? undefined : 2)) {
        const text = prompt(parts, [user('question-text'), ...messages], offered);
        if (typeof text !== 'string') {
          faults.push(`${name}: ${title}: ${text.templateText ?? text.why}`);
          continue;
        }
        const same = rendered.get(text);
        if (same !== undefined) faults.push(`${name}: ${same} = ${title}`);
        rendered.set(text, title);
        const texts = messages.flatMap(({ content, tool_calls: made = [] }) => [
          ...(typeof content === 'string' ? [content] : []),
          ...made.flatMap(({ function: { arguments: given } }) => /[a-z]-text/.exec(given) ?? []),
        ]);
        const missing = texts.filter((each) => !text.includes(each));
        if (missing.length > 0) faults.push(`${name}: ${title}: without ${missing.join(' ')}`);
      }
      for (const [title, one, other] of offered ? SAME : []) {
        const [text, same] = [one, other].map((messages) =>
          prompt(parts, [user('question-text'), ...messages], offered),
        );
        if (typeof text !== 'string' || text !== same) faults.push(`${name}: ${title}`);
      }
    }
  });
  t.same(faults, []);
  t.equal(templates, 70);
  t.end();
});

const system = (content: string): PromptMessage => ({ role: 'system', content });

/** With a system message that is not the first message, or alone. */
const SYSTEMS: Readonly<Record<string, readonly PromptMessage[]>> = {
  later: [system('first-text'), user('question-text'), said('answer-text'), system('later-text'), NEXT],
  'without a first': [user('question-text'), said('answer-text'), system('later-text'), NEXT],
  'before the turn': [system('first-text'), system('later-text'), user('question-text'), said('answer-text'), NEXT],
  last: [system('first-text'), user('question-text'), said('answer-text'), NEXT, system('later-text')],
  'after a result': [
    system('first-text'),
    user('question-text'),
    calls(LOOK),
    result(LOOK, 'hot-text'),
    system('later-text'),
  ],
  'none later': [system('first-text'), user('question-text'), said('answer-text'), NEXT],
  'a user’s': [system('first-text'), user('question-text'), said('answer-text'), user('later-text'), NEXT],
  alone: [system('first-text')],
  'before a result': [system('first-text'), user('question-text'), calls(LOOK), result(LOOK, 'hot-text')],
};

t.test('every system message is in the prompt, at its place', (t) => {
  const faults: string[] = [];
  const refused: string[] = [];
  eachTemplate((name, parts) => {
    const rendered = new Map<string, string>();
    for (const [title, messages] of Object.entries(SYSTEMS)) {
      const text = prompt(parts, messages, false);
      if (typeof text !== 'string') {
        refused.push(`${name}: ${title}`);
        continue;
      }
      const same = rendered.get(text);
      const moves = name.includes('Mistral-Nemo');
      // Mistral Nemo has no mark of a system message: its text stands in the last question.
      const alike = moves && same === 'before the turn';
      if (same !== undefined && !alike) faults.push(`${name}: ${same} = ${title}`);
      rendered.set(text, title);
      const leading = title === 'before the turn' ? ['first-text', 'later-text'] : ['first-text'];
      if (moves && !leading.every((each) => text.includes(each) || title === 'without a first')) {
        faults.push(`${name}: ${title}: without a system message`);
      }
      let at = -1;
      for (const { content } of messages) {
        // Mistral Nemo's template writes the system messages at the beginning into the last question.
        if (typeof content !== 'string' || (moves && leading.includes(content))) continue;
        at = text.indexOf(content, at + 1);
        if (at < 0) faults.push(`${name}: ${title}: ${content} is not at its place`);
        if (at < 0) break;
      }
    }
  });
  t.same(faults, []);
  t.same(refused, []);
  t.end();
});

const LAST = said('reply-text');
const THOUGHT: PromptMessage = { ...LAST, reasoning_content: 'thought-text' };
const OPENING = [system('first-text'), user('question-text')];

/** Each ends with the assistant. */
const REPLIES: Readonly<Record<string, readonly PromptMessage[]>> = {
  reply: [...OPENING, LAST],
  'with a thought': [...OPENING, THOUGHT],
  'after a result': [...OPENING, calls(LOOK), result(LOOK, 'hot-text'), LAST],
  'without a system message': [user('question-text'), LAST],
  'second reply': [...OPENING, said('answer-text with probe-next'), NEXT, LAST],
};

const WAYS: Readonly<Record<string, Partial<ReplyOptions>>> = {
  plain: {},
  'without thoughts': { reasoningEffort: 'none' },
  'with thoughts': { reasoningEffort: 'high' },
  JSON: { jsonObject: true, replySchema: { type: 'object', properties: { key: { type: 'string' } } } },
  'with tools': { calls: { required: false, parallel: true } },
};

/**
 * Why a prompt does not have the reply in a closed turn with a new one behind it; undefined: it has. The texts between the marks of the
 * same conversation with a user's message behind the reply tell: `begin` is what the template has behind that message, with and without
 * what ends it.
 */
function newTurnFault(
  text: string,
  followed: string,
  unprompted: string,
  openings: readonly string[],
  reply: string,
): string | undefined {
  const behind = (whole: string, mark: string): string => whole.slice(whole.lastIndexOf(mark) + mark.length);
  const [tail, between] = [behind(text, reply), behind(followed, reply).split('next-turn-text')[0] ?? ''];
  const [asked, ended] = [behind(followed, 'next-turn-text'), behind(unprompted, 'next-turn-text')];
  const begins = [...(asked.startsWith(ended) ? [asked.slice(ended.length)] : []), asked];
  if (!text.includes(reply)) return 'without the reply';
  const fits = begins.some((begin) => {
    const close = tail.slice(0, tail.length - begin.length);
    const head = between.slice(close.length);
    // The reply is closed if nothing but the beginning of a user's turn is left.
    return (
      begin !== '' &&
      head !== '' &&
      tail === close + begin &&
      between.startsWith(close) &&
      openings.some((opening) => opening.endsWith(head))
    );
  });
  return fits ? undefined : `ends with ${JSON.stringify(tail)}`;
}

t.test('behind a reply a new turn of the model begins as behind a message of the user', (t) => {
  const faults: string[] = [];
  const silent = new Set<string>();
  eachTemplate((name, parts) => {
    // Texts that end with what begins a turn of the user.
    const openings = [OPENING, OPENING.slice(1)].map((messages) => {
      const text = prompt(parts, messages, false);
      return typeof text === 'string' ? text.slice(0, text.indexOf('question-text')) : '';
    });
    for (const [way, options] of Object.entries(WAYS)) {
      const piecesOf = (messages: readonly PromptMessage[], addGenerationPrompt = true) => {
        const offered = options.calls ? { tools: TOOLS } : {};
        const made = promptPieces(parts, { messages, ...offered }, { addGenerationPrompt, ...options });
        return made.kind === 'pieces' ? made.pieces.join('') : made;
      };
      const unprompted = piecesOf([...OPENING, LAST, user('next-turn-text')], false);
      // The last two differ only before the reply.
      for (const [title, messages] of Object.entries(REPLIES).slice(0, way === 'plain' ? undefined : 3)) {
        const text = piecesOf(messages);
        if (parts.template.forms.turns === 'none') {
          silent.add(name);
          if (text !== piecesOf([...messages, user('')])) faults.push(`${name}: ${title}, ${way}: without a question`);
          continue;
        }
        const followed = piecesOf([...messages, user('next-turn-text')]);
        if (typeof text !== 'string' || typeof followed !== 'string' || typeof unprompted !== 'string') {
          faults.push(`${name}: ${title}, ${way}: refused`);
          continue;
        }
        const fault = newTurnFault(text, followed, unprompted, openings, 'reply-text');
        if (fault !== undefined) faults.push(`${name}: ${title}, ${way}: ${fault}`);
      }
    }
  });
  t.same(faults, []);
  t.same(
    [...silent].sort(),
    [
      'Mistral-Small-3.2-24B-Instruct-2506',
      'mistralai-Ministral-3-14B-Reasoning-2512',
      'mistralai-Mistral-Nemo-Instruct-2407',
      'unsloth-mistral-Devstral-Small-2507',
    ],
    'where no text begins a turn of the model, behind an empty message of the user',
  );
  t.end();
});
