/** Over all templates of the bundle: a prompt whose last message is the assistant's ends with what begins a turn of the model. */
import t from 'tap';
import { promptPieces, type ReplyOptions } from '../../../../engine/prompt/chat-prompt.js';
import type { PromptMessage } from '../../../../engine/prompt/conversation.js';
import { markedTemplates } from '../../../support/bundle-formats.js';
import { calls, LOOK, result, said, system, TOOLS, user } from '../../../support/conversations.js';

const NEXT = user('next-text');
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

t.test('behind a reply a new turn of the model begins as behind a message of the user', async (t) => {
  const faults: string[] = [];
  const silent = new Set<string>();
  for (const { name, parts } of await markedTemplates()) {
    // Texts that end with what begins a turn of the user.
    const openings = [OPENING, OPENING.slice(1)].map((messages) => {
      const made = promptPieces(parts, { messages }, { addGenerationPrompt: true });
      const text = made.kind === 'pieces' ? made.pieces.join('') : '';
      return text.slice(0, text.indexOf('question-text'));
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
  }
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
});
