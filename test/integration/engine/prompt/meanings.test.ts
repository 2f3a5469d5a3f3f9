/**
 * Over all templates of the bundle: conversations of different meaning have different prompts, and nothing that a caller sent is
 * missing in a prompt.
 */
import t from 'tap';
import { promptPieces, type PromptParts } from '../../../../engine/prompt/chat-prompt.js';
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

async function eachTemplate(use: (name: string, parts: PromptParts) => void): Promise<void> {
  const vocabulary = await sharedVocabulary('qwen2');
  for (const name of await bundleTemplates()) {
    const made = makePromptParts(vocabulary, { chatTemplate: await bundleTemplate(name) });
    if (made.kind === 'ok') use(name, made.parts);
  }
}

function prompt(parts: PromptParts, messages: readonly PromptMessage[], offered = true) {
  const options = { addGenerationPrompt: true, ...(offered && { calls: { required: false, parallel: true } }) };
  const made = promptPieces(parts, { messages, ...(offered && { tools: TOOLS }) }, options);
  return made.kind === 'pieces' ? made.pieces.join('') : made;
}

t.test('conversations with calls that differ in meaning have different prompts', async (t) => {
  const faults: string[] = [];
  let templates = 0;
  await eachTemplate((name, parts) => {
    templates += 1;
    for (const offered of [true, false]) {
      const rendered = new Map<string, string>();
      // Templates write earlier calls alike with and without tools.
      for (const [title, messages] of Object.entries(DIFFERENT).slice(0, offered ? undefined : 2)) {
        const text = prompt(parts, [user('question-text'), ...messages], offered);
        if (typeof text !== 'string') {
          faults.push(`${name}: ${title}: ${text.says ?? text.why}`);
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

t.test('every system message is in the prompt, at its place', async (t) => {
  const faults: string[] = [];
  const refused: string[] = [];
  await eachTemplate((name, parts) => {
    const rendered = new Map<string, string>();
    for (const [title, messages] of Object.entries(SYSTEMS)) {
      const text = prompt(parts, messages, false);
      if (typeof text !== 'string') {
        refused.push(`${name}: ${title}`);
        continue;
      }
      const same = rendered.get(text);
      if (same !== undefined) faults.push(`${name}: ${same} = ${title}`);
      rendered.set(text, title);
      const leading = title === 'before the turn' ? ['first-text', 'later-text'] : ['first-text'];
      const moves = name.includes('Mistral-Nemo');
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
  const alternate = [
    'Mistral-Small-3.2-24B-Instruct-2506',
    'google-gemma-2-2b-it',
    'mistralai-Ministral-3-14B-Reasoning-2512',
    'mistralai-Mistral-Nemo-Instruct-2407',
  ];
  const twoUsers = alternate.map((name) => `${name}: a user’s`);
  t.same(refused.sort(), twoUsers.sort(), 'only two messages of the user in a row, which these templates do not take');
});
