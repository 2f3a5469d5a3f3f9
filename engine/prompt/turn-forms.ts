/**
 * Finds how a template begins a turn of the model after a reply, by rendering conversations with marks, and begins one where the
 * template itself does not: some templates end the prompt behind the closed reply, some leave the reply open, some do not close it
 * before the next turn. There the conversation is rendered with a user's message behind the reply, and that message is taken out of
 * the text, so that the reply is closed and the turn begins as after a user's message.
 */
import type { PromptMessage } from './conversation.js';

/**
 * How a turn of the model begins after a reply. `begun`: as the template writes it. `none`: the template has no text that begins one.
 * Otherwise by a message that is taken out again.
 */
export type TurnForm = 'begun' | 'none' | TakenOut;

/** What a template writes around the text of a user's message: `head` before it, `close` behind it. */
export interface TakenOut {
  readonly head: string;
  readonly close: string;
}

/** undefined: the template threw. */
type Render = (messages: readonly PromptMessage[], addGenerationPrompt: boolean) => string | undefined;

const QUESTION = 'probe-question';
const REPLY = 'probe-reply';
const NEXT = 'probe-next';
const ASKED: PromptMessage = { role: 'user', content: QUESTION };
const REPLIED: PromptMessage = { role: 'assistant', content: REPLY };
/** The message that is taken out again. */
export const NEXT_QUESTION: PromptMessage = { role: 'user', content: NEXT };

/** The form of a template. Renders up to six conversations. */
export function turnFormOf(render: Render): TurnForm {
  const asked = textBehind(render([ASKED], true), QUESTION);
  const replied = textBehind(render([ASKED, REPLIED], true), REPLY);
  // It takes no such conversation.
  if (asked === undefined || replied === undefined) return 'begun';
  const close = textBehind(render([ASKED], false), QUESTION);
  const begin = close !== undefined && asked.startsWith(close) ? asked.slice(close.length) : asked;
  const twice = textBetween(render([ASKED, NEXT_QUESTION], false), QUESTION, NEXT);
  if (begin === '' && close !== undefined && twice?.startsWith(close) === true) return 'none';
  const answered = textBetween(render([ASKED, REPLIED, NEXT_QUESTION], false), REPLY, NEXT);
  const head = without(twice, close) ?? without(answered, textBehind(render([ASKED, REPLIED], false), REPLY));
  const ended = head !== undefined && answered?.endsWith(head) === true;
  // The template may write what begins a turn whether it is asked to or not.
  const needed = begin === '' ? asked : begin;
  const isBegun = needed !== '' && replied.endsWith(needed);
  if (!ended || begin === '' || close === undefined) return isBegun ? 'begun' : 'none';
  const replyClose = answered.slice(0, answered.length - head.length);
  return replied === replyClose + begin || (isBegun && replied.endsWith(asked)) ? 'begun' : { head, close };
}

/**
 * A rendered prompt whose last message is {@link NEXT_QUESTION}, without that message. `mark`: in the template's special texts
 * (Marking), perhaps empty. undefined: the template wrote the message in another form than when it was probed.
 */
export function withoutNextQuestion(text: string, { head, close }: TakenOut, mark: string): string | undefined {
  const at = text.lastIndexOf(NEXT);
  if (at < 0) return undefined;
  const from = startOf(text, at, head, mark);
  const to = endOf(text, at + NEXT.length, close, mark);
  return from === undefined || to === undefined ? undefined : text.slice(0, from) + text.slice(to);
}

/** Where `part` starts that ends at `end`, marks not counted. */
function startOf(text: string, end: number, part: string, mark: string): number | undefined {
  let at = end;
  for (let i = part.length - 1; i >= 0; i--) {
    at -= 1;
    while (mark !== '' && text[at] === mark) at -= 1;
    if (at < 0 || text[at] !== part[i]) return undefined;
  }
  return at;
}

/** Where `part` ends that starts at `start`, marks not counted. */
function endOf(text: string, start: number, part: string, mark: string): number | undefined {
  let at = start;
  for (let i = 0; i < part.length; i++) {
    while (mark !== '' && text[at] === mark) at += 1;
    if (text[at] !== part[i]) return undefined;
    at += 1;
  }
  return at;
}

/** undefined also for an empty rest: no user's message begins with nothing. */
function without(text: string | undefined, lead: string | undefined): string | undefined {
  if (text === undefined || lead === undefined || !text.startsWith(lead)) return undefined;
  return text.slice(lead.length) || undefined;
}

function textBehind(text: string | undefined, mark: string): string | undefined {
  const at = text?.lastIndexOf(mark) ?? -1;
  return at < 0 ? undefined : text?.slice(at + mark.length);
}

function textBetween(text: string | undefined, from: string, to: string): string | undefined {
  const rest = textBehind(text, from);
  const at = rest?.indexOf(to) ?? -1;
  return at < 0 ? undefined : rest?.slice(0, at);
}
