/**
 * Brings a caller's history into one regular form, before anything depends on the template. Agents send what a run has left behind:
 * results in another order, missing or of calls that were dropped, arguments that max_tokens has cut. None of it ends a session, and
 * nothing is left out: what has no form of its own becomes text that says what it is.
 *
 * - Each call has exactly one result, directly behind it and in the order of the calls. Most templates write results in the order in
 *   which they come and without ids, so that a reader of the prompt takes the first result for the first call's. A call without a
 *   result gets one that says so.
 * - A result belongs to the last call of its id that has none yet. The turn of the assistant ends where the assistant speaks again
 *   after a user or a system message: its calls take no results after that. A result of no call becomes text of the user.
 * - The arguments of a call are the text of one JSON object. Any other text becomes the one member of such an object.
 */
import { CallArguments } from './call-arguments.js';
import {
  joinedReply,
  textOf,
  withMessages,
  type PromptConversation,
  type PromptMessage,
  type PromptToolCall,
} from './conversation.js';

/** The content of the result of a call that has none. */
export const NO_RESULT = 'No result was given for this call.';

/** The name of the member that holds the caller's text in place of arguments that are not a JSON object. */
export const INVALID_ARGUMENTS = 'invalid_arguments';

export type RegularHistory =
  | { readonly kind: 'ok'; readonly conversation: PromptConversation }
  /** Under the strict contract: the arguments of this call are no JSON, or this message is a result of no call. By their indexes. */
  | { readonly kind: 'arguments'; readonly message: number; readonly call: number }
  | { readonly kind: 'unpaired-result'; readonly message: number };

/** Messages that are as they are to be stay the same objects. `strict`: what would have to become text is refused. */
export function regularHistory(conversation: PromptConversation, strict = false): RegularHistory {
  const messages = conversation.messages.map(quoted);
  if (!messages.some(({ role, tool_calls: calls }) => role === 'tool' || (calls ?? []).length > 0)) {
    return { kind: 'ok', conversation: withMessages(conversation, messages) };
  }
  const given = new CallArguments();
  const called: PromptMessage[] = [];
  for (const [at, message] of messages.entries()) {
    const regular = (message.tool_calls ?? []).map((call) => regularCall(call, given, strict));
    const call = regular.indexOf(undefined);
    if (call >= 0) return { kind: 'arguments', message: at, call };
    const same = regular.every((each, i) => each === message.tool_calls?.[i]);
    const calls = regular.filter((each) => each !== undefined);
    called.push(same ? message : Object.assign({}, message, { tool_calls: calls }));
  }
  const results = resultsOf(called);
  const paired = new Set(results.flat());
  const unpaired = called.findIndex(({ role }, at) => role === 'tool' && !paired.has(at));
  if (strict && unpaired >= 0) return { kind: 'unpaired-result', message: unpaired };
  return { kind: 'ok', conversation: withMessages(conversation, inOrder(called, results)) };
}

/* Text that says what it is. */

/** What becomes text where a template has no form for it. */
export type InWords = 'system message' | 'tool result without a call';

/** A part of the conversation as text of another message. */
export function inWords(kind: InWords, text: string): string {
  return beginOf(kind) + text + endOf(kind);
}

const beginOf = (kind: InWords): string => `The following is a ${kind}:\n\n`;
const endOf = (kind: InWords): string => `\n\nThis is the end of the ${kind}.`;

/** A result without a call as a message of the user. Its images stay parts of it. */
function unpairedResult({ content }: PromptMessage): PromptMessage {
  const kind = 'tool result without a call';
  if (typeof content === 'string' || !content?.some(({ type }) => type !== 'text'))
    return { role: 'user', content: inWords(kind, textOf(content) ?? '') };
  const begin = { type: 'text', text: beginOf(kind) };
  const end = { type: 'text', text: endOf(kind) };
  return { role: 'user', content: [begin, ...content, end] };
}

/** These words in a text of the caller's. */
const WORDS =
  /((?:The following is a|This is the end of the) )(?=(?:quoted )*(?:system message|tool result without a call))/g;

/** With "quoted" in {@link inWords} that the caller's own text has: otherwise a user could write what reads as the system's message. */
function quoted(message: PromptMessage): PromptMessage {
  const { content } = message;
  if (typeof content === 'string') {
    const text = content.replace(WORDS, '$1quoted ');
    return text === content ? message : Object.assign({}, message, { content: text });
  }
  // Parts are joined with line breaks, so that these words never stand in two of them.
  if (!content?.some(({ text }) => text !== undefined && text.search(WORDS) >= 0)) return message;
  const parts = content.map((part) =>
    part.text === undefined ? part : Object.assign({}, part, { text: part.text.replace(WORDS, '$1quoted ') }),
  );
  return Object.assign({}, message, { content: parts });
}

/* Calls. */

/**
 * A call with a JSON object for arguments, and without characters in its name that could end it in a template's text. Undefined if its
 * arguments are not JSON, and the contract is strict.
 */
function regularCall(call: PromptToolCall, given: CallArguments, strict: boolean): PromptToolCall | undefined {
  const { name, arguments: text } = call.function;
  const plain = name.replace(/[^\p{L}\p{N}_.:/@$-]/gu, (char) => `%${char.codePointAt(0)?.toString(16) ?? ''};`);
  const kind = given.kindOf(text, INVALID_ARGUMENTS);
  if (kind === 'broken' && strict) return undefined;
  if (kind === 'object' && plain === name) return call;
  const object = text.trim() === 'null' ? '{}' : JSON.stringify({ [INVALID_ARGUMENTS]: text });
  const called = { name: plain, arguments: kind === 'object' ? text : object };
  return Object.assign({}, call, { function: called });
}

/* Results. */

/** The index of each call's result by the indexes of its message and of the call. Absent: it has none. */
type Results = readonly (readonly (number | undefined)[])[];

/** The calls of one id in one message that have no result yet. */
interface Unanswered {
  readonly message: number;
  readonly calls: number[];
}

function resultsOf(messages: readonly PromptMessage[]): Results {
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
      const ofMessage = last && results[last.message];
      if (ofMessage === undefined || call === undefined) continue;
      ofMessage[call] = at;
      if (last?.calls.length === 0) unanswered?.pop();
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
  const paired = new Set(results.flat());
  for (let at = 0; at < messages.length; at++) {
    const message = messages[at];
    if (message === undefined || paired.has(at)) continue;
    if (message.role === 'tool') {
      ordered.push(unpairedResult(message));
      continue;
    }
    const { tool_calls: calls = [] } = message;
    if (message.role !== 'assistant' || calls.length === 0) {
      ordered.push(message);
      continue;
    }
    // What the assistant said between its calls and their results stands beside the calls.
    const last = Math.max(at, ...calls.map((_, i) => results[at]?.[i] ?? at));
    const beside: PromptMessage[] = [];
    for (let next = messages[at + 1]; at + 1 < last && next !== undefined; next = messages[at + 1]) {
      if (next.role !== 'assistant' || (next.tool_calls ?? []).length > 0) break;
      beside.push(next);
      at += 1;
    }
    const of = results[at - beside.length] ?? [];
    const named = calls.map((call) => ids.named(call));
    const renamed = named.some((call, i) => call !== calls[i]);
    const calling = beside.length === 0 ? message : joinedReply([message, ...beside]);
    ordered.push(renamed ? Object.assign({}, calling, { tool_calls: named }) : calling);
    for (const [i, { id }] of named.entries()) ordered.push(resultOf(messages[of[i] ?? -1], id));
  }
  return ordered;
}

function resultOf(given: PromptMessage | undefined, id: string): PromptMessage {
  if (given === undefined) return { role: 'tool', tool_call_id: id, content: NO_RESULT };
  return given.tool_call_id === id ? given : Object.assign({}, given, { tool_call_id: id });
}

/** Gives a call a new id where an earlier call has the same one: what follows finds a call by its id. */
class UniqueIds {
  readonly #used = new Set<string>();
  #made = 0;

  named<Call extends { readonly id: string }>(call: Call): Call {
    let { id } = call;
    while (this.#used.has(id)) id = `${call.id}-${++this.#made}`;
    this.#used.add(id);
    return id === call.id ? call : Object.assign({}, call, { id });
  }
}
