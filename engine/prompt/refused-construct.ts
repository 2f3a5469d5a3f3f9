/**
 * Finds the construct of a conversation that a template refuses, by rendering the conversation without each construct
 * in turn.
 */
import { textOf, type PromptConversation, type PromptMessage } from './conversation.js';
import type { ChatTemplate, RenderOptions } from './template.js';

/** Returns the conversation without the construct; the same messages where it has none. */
type Without = (conversation: PromptConversation) => PromptConversation;

const filtered =
  (keep: (message: PromptMessage, at: number, all: readonly PromptMessage[]) => boolean): Without =>
  (conversation) => ({ ...conversation, messages: conversation.messages.filter(keep) });

/** In the order of asking. */
const CONSTRUCTS: readonly (readonly [name: string, without: Without])[] = [
  ['these tools', ({ messages }) => ({ messages })],
  ['a system message after the first message', filtered(({ role }, at) => at === 0 || role !== 'system')],
  ['a system message', filtered(({ role }) => role !== 'system')],
  ['two messages of one role in a row', filtered(({ role }, at, all) => all[at - 1]?.role !== role)],
  ['a reply without text', filtered(({ role, content }) => role !== 'assistant' || textOf(content) !== undefined)],
  [
    'several calls in one message',
    (conversation) => ({
      ...conversation,
      messages: conversation.messages.map((message) =>
        message.tool_calls ? { ...message, tool_calls: message.tool_calls.slice(0, 1) } : message,
      ),
    }),
  ],
  ['calls and their results', filtered(({ role, tool_calls: calls }) => role !== 'tool' && calls === undefined)],
  ['a reply before the first question', fromFirstQuestion],
];

function fromFirstQuestion(conversation: PromptConversation): PromptConversation {
  const first = conversation.messages.findIndex(({ role }) => role === 'user');
  return filtered(({ role }, at) => at >= first || role !== 'assistant')(conversation);
}

/** Larger conversations are not rendered again: it takes up to eight times what the refusal took. */
const MAX_MESSAGES = 256;
const MAX_CHARACTERS = 256 * 1024;

export interface RefusedConstruct {
  readonly says: string;
  /** The first message with the construct; absent: it is in none. */
  readonly message?: PromptMessage;
}

/** undefined: it is none of the constructs above. */
export function refusedConstruct(
  template: ChatTemplate,
  conversation: PromptConversation,
  options: RenderOptions,
): RefusedConstruct | undefined {
  const { messages } = conversation;
  const characters = messages.reduce((sum, { content }) => sum + (textOf(content)?.length ?? 0), 0);
  if (messages.length > MAX_MESSAGES || characters > MAX_CHARACTERS) return undefined;
  for (const [says, without] of CONSTRUCTS) {
    const rest = without(conversation);
    if (rest.messages.length === 0 || template.render(rest, options).kind !== 'text') continue;
    const kept = new Set(rest.messages);
    const message = messages.find((each) => !kept.has(each));
    return { says, ...(message && { message }) };
  }
  return undefined;
}
