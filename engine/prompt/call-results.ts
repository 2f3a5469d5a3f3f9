/**
 * Gives each call of a conversation exactly one result, directly behind it and in the order of the calls. Most templates write
 * results in the order in which they come and without ids, so that a reader of the prompt takes the first result for the first
 * call's. A call without a result gets one that says so. A result of no call is refused.
 *
 * A result belongs to the last call of its id that has none yet. The turn of the assistant ends where the assistant speaks again
 * after a user or a system message: its calls take no results after that.
 */
import { textOf, type PromptConversation, type PromptMessage } from './conversation.js';

/** The content of the result of a call that has none. */
export const NO_RESULT = 'No result was given for this call.';

export type PairedResults =
  | { readonly kind: 'ok'; readonly conversation: PromptConversation }
  /** `message`: the index of the first result that belongs to no call. */
  | { readonly kind: 'unpaired'; readonly message: number };

/** The index of each call's result by the indexes of its message and of the call. Absent: it has none. */
type Results = readonly (readonly (number | undefined)[])[];

/** The calls of one id in one message that have no result yet. */
interface Unanswered {
  readonly message: number;
  readonly calls: number[];
}

/** Messages that are as they are to be stay the same objects. */
export function withPairedResults(conversation: PromptConversation): PairedResults {
  const { messages } = conversation;
  if (!messages.some(({ role, tool_calls: calls }) => role === 'tool' || (calls ?? []).length > 0)) {
    return { kind: 'ok', conversation };
  }
  const results = resultsOf(messages);
  if (typeof results === 'number') return { kind: 'unpaired', message: results };
  return { kind: 'ok', conversation: { ...conversation, messages: inOrder(messages, results) } };
}

/** A number: the index of a result that belongs to no call. */
function resultsOf(messages: readonly PromptMessage[]): Results | number {
  const results: (number | undefined)[][] = messages.map(() => []);
  const open = new Map<string, Unanswered[]>();
  let asked = false;
  for (const [at, { role, tool_calls: calls = [], tool_call_id: id = '' }] of messages.entries()) {
    if (role === 'assistant') {
      if (asked) open.clear();
      asked = false;
      for (const [i, call] of calls.entries()) addCall(open, call.id, at, i);
    } else if (role === 'tool') {
      const unanswered = open.get(id);
      const last = unanswered?.at(-1);
      const call = last?.calls.pop();
      if (last === undefined || call === undefined) return at;
      if (last.calls.length === 0) unanswered?.pop();
      const ofMessage = results[last.message];
      if (ofMessage) ofMessage[call] = at;
    } else asked = true;
  }
  return results;
}

function addCall(open: Map<string, Unanswered[]>, id: string, message: number, call: number): void {
  const unanswered = open.get(id) ?? [];
  const last = unanswered.at(-1);
  // The first call of an id in a message gets the first result: calls are taken from the end.
  if (last?.message === message) last.calls.unshift(call);
  else unanswered.push({ message, calls: [call] });
  open.set(id, unanswered);
}

function inOrder(messages: readonly PromptMessage[], results: Results): PromptMessage[] {
  const ordered: PromptMessage[] = [];
  const ids = new UniqueIds();
  for (let at = 0; at < messages.length; at++) {
    const message = messages[at];
    if (message === undefined || message.role === 'tool') continue;
    const { tool_calls: calls = [] } = message;
    if (message.role !== 'assistant' || calls.length === 0) {
      ordered.push(message);
      continue;
    }
    // What the assistant said between its calls and their results stands beside the calls.
    const last = Math.max(...(results[at] ?? []).map((result) => result ?? at), at);
    const beside: PromptMessage[] = [];
    for (let next = messages[at + 1]; at + 1 < last && next !== undefined; next = messages[at + 1]) {
      if (next.role !== 'assistant' || (next.tool_calls ?? []).length > 0) break;
      beside.push(next);
      at += 1;
    }
    const of = results[at - beside.length] ?? [];
    const named = calls.map((call) => ids.named(call));
    const renamed = named.some((call, i) => call !== calls[i]);
    const calling = beside.length === 0 ? message : withWords(message, beside);
    ordered.push(renamed ? { ...calling, tool_calls: named } : calling);
    for (const [i, { id }] of named.entries()) ordered.push(resultOf(messages[of[i] ?? -1], id));
  }
  return ordered;
}

function resultOf(given: PromptMessage | undefined, id: string): PromptMessage {
  if (given === undefined) return { role: 'tool', tool_call_id: id, content: NO_RESULT };
  return given.tool_call_id === id ? given : { ...given, tool_call_id: id };
}

function withWords(message: PromptMessage, beside: readonly PromptMessage[]): PromptMessage {
  const all = [message, ...beside];
  const joined = (texts: readonly (string | null | undefined)[]): string =>
    texts.flatMap((text) => (text ? [text] : [])).join('\n\n');
  const content = joined(all.map((each) => textOf(each.content)));
  const thought = joined(all.map((each) => each.reasoning_content));
  return {
    ...message,
    content: content === '' ? null : content,
    ...(thought !== '' && { reasoning_content: thought }),
  };
}

/** Gives a call a new id where an earlier call has the same one: what follows finds a call by its id. */
class UniqueIds {
  readonly #used = new Set<string>();
  #made = 0;

  named<Call extends { readonly id: string }>(call: Call): Call {
    let { id } = call;
    while (this.#used.has(id)) id = `${call.id}-${++this.#made}`;
    this.#used.add(id);
    return id === call.id ? call : { ...call, id };
  }
}
