/**
 * For templates that write a call's id and not its function, as Moonshot's own of Kimi K2 do: the model's ids are made of the
 * function's name and the call's number, so that callers' ids would hide what was called.
 */
import type { PromptConversation } from './conversation.js';

/** The conversation with ids as that model writes them, those of results too. */
export function withNamesForIds({ messages, ...rest }: PromptConversation): PromptConversation {
  const ids = new Map<string, string>();
  let calls = 0;
  const renamed = messages.map((message) => {
    const { tool_calls: made, tool_call_id: answered } = message;
    const named = made?.map((call) => {
      const id = `functions.${call.function.name}:${calls}`;
      calls += 1;
      ids.set(call.id, id);
      return { ...call, id };
    });
    const result = answered === undefined ? undefined : ids.get(answered);
    return { ...message, ...(named && { tool_calls: named }), ...(result !== undefined && { tool_call_id: result }) };
  });
  return { ...rest, messages: renamed };
}
