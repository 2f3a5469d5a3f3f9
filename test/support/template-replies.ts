/** Replies as templates write them: a thought, some words and calls. */
import type { PromptParts } from '../../engine/prompt/chat-prompt.js';
import type { ReplyFormat } from '../../engine/protocol/reply-format.js';

export const USER = { role: 'user', content: 'user-words' };
export const THOUGHT = 'I must look.';
export const WORDS = 'Some words.';
const RESULT = 'tool-result';

/** A reply with thoughts, as a caller asks for it. */
export const ANSWER = { addGenerationPrompt: true, reasoningEffort: 'high' } as const;

export interface WrittenCall {
  readonly name: string;
  readonly arguments: object;
}

/**
 * The text of a rendered conversation from the beginning of the reply that makes these calls up to their first result. Undefined: the
 * text does not have `sign`, which is in the calls' arguments.
 */
export function writtenTurn(
  { template }: PromptParts,
  tools: readonly object[],
  calls: readonly WrittenCall[],
  sign: string,
): string | undefined {
  const turnWith = (content: string | null) => ({
    role: 'assistant',
    content,
    reasoning_content: THOUGHT,
    tool_calls: calls.map((call, i) => ({
      id: `call0000${i}`,
      type: 'function',
      function: { name: call.name, arguments: JSON.stringify(call.arguments) },
    })),
  });
  const results = calls.map((_, i) => ({ role: 'tool', tool_call_id: `call0000${i}`, content: RESULT }));
  const prompt = template.render({ tools, messages: [USER] }, ANSWER);
  const turn = (content: string | null) => ({ tools, messages: [USER, turnWith(content), ...results] });
  // Where the template leaves out words beside calls, they are given to it as another message.
  const shape = template.shape(turn(WORDS), ANSWER);
  const apart = shape.kind === 'shaped' && shape.shaped.messages.length > turn(WORDS).messages.length;
  const rendered = template.render(turn(apart ? null : WORDS), { ...ANSWER, addGenerationPrompt: false });
  if (prompt.kind === 'failed' || rendered.kind === 'failed' || !rendered.text.includes(sign)) return undefined;
  const { text } = rendered;
  let common = 0;
  while (common < prompt.text.length && prompt.text[common] === text[common]) common += 1;
  const from = text.slice(0, common).replace(/<[^<>]*$/, '').length;
  return text.slice(from, text.indexOf(RESULT, from));
}

/** What a model would write of a turn: with the end of a thought that the prompt begins, and nothing behind the end of the turn. */
export function replyOf({ thought }: ReplyFormat, turn: string): string {
  const { open = false, ends = [], close = RESULT } = thought ?? {};
  // Some templates omit that end from earlier turns.
  const begun = open && !ends.some((end) => turn.includes(end)) ? `${THOUGHT}${ends[0] ?? ''}` : '';
  const [own = ''] = turn.split(close);
  return begun + own;
}
