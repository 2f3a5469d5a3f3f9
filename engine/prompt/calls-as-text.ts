/** Earlier calls and their results as plain text, for templates that leave them out or do not take them. */
import type { CallSyntax } from '../protocol/reply-format.js';
import { textOf, type PromptConversation, type PromptMessage, type PromptToolCall } from './conversation.js';
import { WRAPPED } from './call-syntax.js';

/**
 * Calls become text of the assistant in the model's own format, or as JSON where its arguments are not. Results become one
 * text of the user, together with the user's message that follows them: many templates take no two in a row.
 */
export function callsAsText(conversation: PromptConversation, syntax: CallSyntax = WRAPPED): PromptConversation {
  if (!conversation.messages.some(({ role, tool_calls: calls }) => role === 'tool' || calls !== undefined)) {
    return conversation;
  }
  const names = new Map<string, string>();
  const messages: PromptMessage[] = [];
  let results: string[] = [];
  const flush = (more: readonly string[] = []): void => {
    if (results.length > 0) messages.push({ role: 'user', content: [...results, ...more].join('\n\n') });
    results = [];
  };
  for (const message of conversation.messages) {
    const { role, content, tool_calls: calls, ...rest } = message;
    const text = textOf(content);
    if (role === 'tool') {
      const name = message.name ?? names.get(message.tool_call_id ?? '');
      results.push(JSON.stringify({ tool_result: { ...(name !== undefined && { name }), content: text ?? '' } }));
      continue;
    }
    if (role === 'user' && results.length > 0) {
      flush(text === undefined ? [] : [text]);
      continue;
    }
    flush();
    for (const { id, function: called } of calls ?? []) names.set(id, called.name);
    const written = calls && calls.length > 0 ? [callText(calls, syntax)] : [];
    messages.push(
      calls ? { ...rest, role, content: [...(text === undefined ? [] : [text]), ...written].join('\n\n') } : message,
    );
  }
  flush();
  return { ...conversation, messages };
}

function callText(calls: readonly PromptToolCall[], syntax: CallSyntax): string {
  const { open, between, next = ', ', close } = syntax.arguments === undefined ? syntax : WRAPPED;
  const each = calls.map(({ function: called }) => `${called.name}${between}${called.arguments.trim() || '{}'}`);
  return `${open}${each.join(next)}${close}`.replaceAll('\0', '0').trim();
}
