/**
 * Finds in which order a template takes the roles of messages, by rendering conversations with marks, and brings conversations into
 * that form. Templates leave out a system message behind the first turn, move it to the front, write it in place of the first one, or
 * refuse it: such a message becomes text of a user's message at its place, in words that say what it is.
 */
import { type PromptConversation, type PromptMessage, textOf } from './conversation.js';

/** undefined: the template threw. */
type Render = (conversation: PromptConversation) => string | undefined;

/** How a template takes system messages. */
export interface SystemForm {
  /** Those behind another message become text. */
  readonly laterAsText?: boolean;
  /** The first one too, where the conversation does not end with a user's message. */
  readonly onlyWithQuestion?: boolean;
  /** The last one does in a conversation without a user's message. */
  readonly needsUser?: boolean;
}

const system = (content: string): PromptMessage => ({ role: 'system', content });
const user = (content: string): PromptMessage => ({ role: 'user', content });
const FIRST = system('probe-first-system');
const LATER = system('probe-later-system');
const TURN = [user('probe-question'), { role: 'assistant', content: 'probe-answer' }];
const NEXT = user('probe-next');
const CALL = { id: 'probe0001', type: 'function', function: { name: 'probe_tool', arguments: '{}' } };
const CALLED: readonly PromptMessage[] = [
  user('probe-question'),
  { role: 'assistant', content: null, tool_calls: [CALL] },
  { role: 'tool', tool_call_id: CALL.id, content: 'probe-result' },
];

/** The form of a template, whose `render` takes calls or throws at them. */
export function systemFormOf(render: Render): SystemForm {
  const inOrder = (messages: readonly PromptMessage[]): boolean => {
    const text = render({ messages });
    let at = -1;
    return messages.every(({ content }) => {
      at = typeof content === 'string' ? (text?.indexOf(content, at + 1) ?? -1) : at;
      return text !== undefined && (typeof content !== 'string' || at >= 0);
    });
  };
  const takesLater = [
    [...TURN, LATER, NEXT],
    [FIRST, ...TURN, LATER, NEXT],
    [FIRST, ...TURN, NEXT, LATER],
  ].every(inOrder);
  const called = render({ messages: [FIRST, ...CALLED] });
  const onlyWithQuestion = called?.includes('probe-first-system') === false && inOrder([FIRST, NEXT]);
  const needsUser = !inOrder([FIRST]);
  return {
    ...(!takesLater && { laterAsText: true }),
    ...(onlyWithQuestion && { onlyWithQuestion }),
    ...(needsUser && { needsUser }),
  };
}

/** Messages that are as they are to be stay the same objects. */
export function inSystemForm(conversation: PromptConversation, form: SystemForm): PromptConversation {
  const { messages } = conversation;
  const asked =
    form.needsUser === true && !messages.some(({ role }) => role === 'user') ? asQuestion(messages) : messages;
  const leading = asked.findIndex(({ role }) => role !== 'system');
  const all = form.onlyWithQuestion === true && asked.at(-1)?.role !== 'user';
  const from = all ? 0 : leading;
  if ((form.laterAsText !== true && !all) || from < 0) return { ...conversation, messages: asked };
  return { ...conversation, messages: asText(asked, from) };
}

/** The last system message as a user's. */
function asQuestion(messages: readonly PromptMessage[]): readonly PromptMessage[] {
  const last = messages.map(({ role }) => role).lastIndexOf('system');
  return messages.map((message, at) => (at === last ? { ...user(''), content: marked(message) } : message));
}

/** System messages from this index on become text of the user's message behind them, else of the one before, else one of their own. */
function asText(messages: readonly PromptMessage[], from: number): readonly PromptMessage[] {
  const done: PromptMessage[] = [];
  let texts: string[] = [];
  const flush = (): void => {
    if (texts.length === 0) return;
    const last = done.at(-1);
    if (last?.role === 'user') done[done.length - 1] = withText(last, [textOf(last.content) ?? '', ...texts]);
    else done.push(user(texts.join('\n\n')));
    texts = [];
  };
  for (const [at, message] of messages.entries()) {
    if (at >= from && message.role === 'system') {
      texts.push(marked(message));
      continue;
    }
    if (message.role === 'user' && texts.length > 0) {
      done.push(withText(message, [...texts, textOf(message.content) ?? '']));
      texts = [];
      continue;
    }
    flush();
    done.push(message);
  }
  flush();
  return done;
}

function withText(message: PromptMessage, texts: readonly string[]): PromptMessage {
  return { ...message, content: texts.filter((text) => text !== '').join('\n\n') };
}

/** A system message in words. */
function marked({ content }: PromptMessage): string {
  return `The following is a system message:\n\n${textOf(content) ?? ''}\n\nThis is the end of the system message.`;
}

/*
 * How a template begins a turn of the model after a reply, and one begun where the template itself does not: some templates end the
 * prompt behind the closed reply, some leave the reply open, some do not close it before the next turn. There the conversation is
 * rendered with a user's message behind the reply, and that message is taken out of the text, so that the reply is closed and the turn
 * begins as after a user's message.
 */

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
type RenderTurn = (messages: readonly PromptMessage[], addGenerationPrompt: boolean) => string | undefined;

const QUESTION = 'probe-question';
const REPLY = 'probe-reply';
const NEXT_TEXT = 'probe-next';
const ASKED: PromptMessage = { role: 'user', content: QUESTION };
const REPLIED: PromptMessage = { role: 'assistant', content: REPLY };
/** The message that is taken out again. */
export const NEXT_QUESTION: PromptMessage = { role: 'user', content: NEXT_TEXT };

/** The form of a template. Renders up to six conversations. */
export function turnFormOf(render: RenderTurn): TurnForm {
  const asked = textBehind(render([ASKED], true), QUESTION);
  const replied = textBehind(render([ASKED, REPLIED], true), REPLY);
  // It takes no such conversation.
  if (asked === undefined || replied === undefined) return 'begun';
  const close = textBehind(render([ASKED], false), QUESTION);
  const begin = close !== undefined && asked.startsWith(close) ? asked.slice(close.length) : asked;
  const twice = textBetween(render([ASKED, NEXT_QUESTION], false), QUESTION, NEXT_TEXT);
  if (begin === '' && close !== undefined && twice?.startsWith(close) === true) return 'none';
  const answered = textBetween(render([ASKED, REPLIED, NEXT_QUESTION], false), REPLY, NEXT_TEXT);
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
  const at = text.lastIndexOf(NEXT_TEXT);
  if (at < 0) return undefined;
  const from = startOf(text, at, head, mark);
  const to = endOf(text, at + NEXT_TEXT.length, close, mark);
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
