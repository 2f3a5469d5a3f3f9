/**
 * Finds in which order a template takes the roles of messages, by rendering conversations with marks, and brings conversations into
 * that form. Nothing is moved to the front, since a conversation's prompt has to begin with the one of its last turn.
 *
 * - Templates leave out a system message behind the first turn, move it to the front, write it in place of the first one, or refuse it.
 *   Such a message becomes text at its place, of the user's message or the result before it, in words that say what it is.
 * - Templates refuse two messages of the user in a row, or a reply behind another one. Such messages become one. Where calls stand
 *   between them, an empty message of the other role does.
 * - Templates take the first message for the user's, whoever it is of, or refuse it. An empty message of the user then stands first.
 */
import { joinedReply, joinedTexts, textOf, withMessages } from './conversation.js';
import type { PromptConversation, PromptMessage } from './conversation.js';
import { inWords } from './history.js';

/** Undefined if the template threw. */
type Render = (conversation: PromptConversation) => string | undefined;

/** How a template takes the roles of messages. */
export interface RoleForm {
  /** System messages behind another message become text. */
  readonly laterAsText?: boolean;
  /** The first one too, where the conversation does not end with a user's message. */
  readonly onlyWithQuestion?: boolean;
  /** There is a message of the user: the last system message, or an empty one. */
  readonly needsUser?: boolean;
  /** The first message behind the system's is the user's. */
  readonly userFirst?: boolean;
  /** Messages of the user and of the assistant alternate, those with calls not counted. */
  readonly alternates?: boolean;
}

/** The form that every template takes: roles in turn, from the user's on. Calls have to be text. */
export const PLAIN_ROLES: RoleForm = { laterAsText: true, needsUser: true, userFirst: true, alternates: true };

const system = (content: string): PromptMessage => ({ role: 'system', content });
const user = (content: string): PromptMessage => ({ role: 'user', content });
const reply = (content: string): PromptMessage => ({ role: 'assistant', content });
const FIRST = system('probe-first-system');
const LATER = system('probe-later-system');
const ASK = user('probe-question');
const ANSWER = reply('probe-answer');
const MORE = reply('probe-more');
const TURN = [ASK, ANSWER];
const NEXT = user('probe-next');
const CALL = { id: 'probe0001', type: 'function', function: { name: 'probe_tool', arguments: '{}' } };
const CALLED: readonly PromptMessage[] = [
  ASK,
  { role: 'assistant', content: null, tool_calls: [CALL] },
  { role: 'tool', tool_call_id: CALL.id, content: 'probe-result' },
];
const TOOLS = [{ type: 'function', function: { name: 'probe_tool', description: 'A tool', parameters: {} } }];

/** The form of a template, whose `render` takes calls or throws at them. `lists`: it is given the tools. */
export function roleFormOf(render: Render, lists: boolean): RoleForm {
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
  const alternates = [
    [ASK, NEXT],
    [...TURN, MORE, NEXT],
    [ASK, NEXT, ANSWER, MORE, NEXT],
  ].some((each) => !inOrder(each));
  // With tools some templates take the first message for the user's.
  const first = (message: PromptMessage): readonly (string | undefined)[] =>
    [[], lists ? TOOLS : []].map((tools) => render({ messages: [message, NEXT], ...(tools.length > 0 && { tools }) }));
  const [replies, questions] = [first(ANSWER), first(user(ANSWER.content as string))];
  const userFirst = !inOrder([ANSWER, NEXT]) || replies.some((text, i) => text === undefined || text === questions[i]);
  return {
    ...(!takesLater && { laterAsText: true }),
    ...(onlyWithQuestion && { onlyWithQuestion }),
    ...(needsUser && { needsUser }),
    ...(userFirst && { userFirst }),
    ...(alternates && { alternates }),
  };
}

/** System messages in the form. Messages that are as they are to be stay the same objects. */
export function inSystemForm(conversation: PromptConversation, form: RoleForm): PromptConversation {
  const { messages } = conversation;
  const asked =
    form.needsUser === true && !messages.some(({ role }) => role === 'user') ? asQuestion(messages) : messages;
  const leading = asked.findIndex(({ role }) => role !== 'system');
  const all = form.onlyWithQuestion === true && asked.at(-1)?.role !== 'user';
  const from = all ? 0 : leading;
  const stays = (form.laterAsText !== true && !all) || from < 0;
  return withMessages(conversation, stays ? asked : asText(asked, from));
}

/** The last system message as a user's. */
function asQuestion(messages: readonly PromptMessage[]): readonly PromptMessage[] {
  const last = messages.map(({ role }) => role).lastIndexOf('system');
  return messages.map((message, at) => (at === last ? user(marked(message)) : message));
}

/**
 * System messages from this index on become text: of the user's message or the result before, so that a prompt that ends with one is
 * the beginning of the next; else of the user's message behind, or a message of their own.
 */
function asText(messages: readonly PromptMessage[], from: number): readonly PromptMessage[] {
  const done: PromptMessage[] = [];
  let texts: string[] = [];
  for (const [at, message] of messages.entries()) {
    const before = done.at(-1);
    if (at < from || message.role !== 'system') {
      const joins = message.role === 'user' && texts.length > 0;
      if (!joins && texts.length > 0) done.push(user(joinedTexts(texts)));
      done.push(joins ? withText(message, [...texts, textOf(message.content)]) : message);
      texts = [];
    } else if (texts.length === 0 && (before?.role === 'user' || before?.role === 'tool')) {
      done[done.length - 1] = withText(before, [textOf(before.content), marked(message)]);
    } else texts.push(marked(message));
  }
  return texts.length > 0 ? [...done, user(joinedTexts(texts))] : done;
}

function withText(message: PromptMessage, texts: readonly (string | undefined)[]): PromptMessage {
  return Object.assign({}, message, { content: joinedTexts(texts) });
}

/** A system message in words. */
function marked({ content }: PromptMessage): string {
  return inWords('system message', textOf(content) ?? '');
}

/** Messages of the user and of the assistant in the form, where calls already have theirs (call-forms.ts). */
export function inRoleForm(conversation: PromptConversation, form: RoleForm): PromptConversation {
  const { messages } = conversation;
  const leading = messages.findIndex(({ role }) => role !== 'system');
  const first = messages[leading];
  const lacksFirst = form.userFirst === true && first?.role === 'assistant';
  const lacksUser = form.needsUser === true && !messages.some(({ role }) => role === 'user');
  const led =
    lacksFirst || lacksUser ? messages.toSpliced(leading < 0 ? messages.length : leading, 0, user('')) : messages;
  return withMessages(conversation, form.alternates === true ? alternating(led) : led);
}

function alternating(messages: readonly PromptMessage[]): readonly PromptMessage[] {
  const done: PromptMessage[] = [];
  let last: string | undefined;
  /** Where the calls behind the last message that counts begin. */
  let calls: number | undefined;
  for (const message of messages) {
    const { role, tool_calls: made = [] } = message;
    const counts = role !== 'system' && role !== 'tool' && made.length === 0;
    if (!counts) {
      if (role !== 'system') calls ??= done.length;
      done.push(message);
      continue;
    }
    const before = done.at(-1);
    if (role === last && before !== undefined && calls === undefined) {
      done[done.length - 1] =
        role === 'user'
          ? withText(
              before,
              [before, message].map(({ content }) => textOf(content)),
            )
          : joinedReply([before, message]);
      continue;
    }
    if (role === last)
      done.splice(role === 'user' ? done.length : (calls ?? done.length), 0, role === 'user' ? reply('') : user(''));
    done.push(message);
    last = role;
    calls = undefined;
  }
  return done;
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

/** Undefined if the template threw. */
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
 * (Marking), perhaps empty. Undefined if the template wrote the message in another form than when it was probed.
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
