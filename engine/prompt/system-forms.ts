/**
 * Finds where a template takes system messages, by rendering conversations with marks, and brings conversations into that form:
 * templates leave out a system message behind the first turn, move it to the front, write it in place of the first one, or refuse
 * it. Such a message becomes text of a user's message at its place, in words that say what it is.
 */
import { textOf, type PromptConversation, type PromptMessage } from './conversation.js';

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
