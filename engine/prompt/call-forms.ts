/**
 * Finds how a template takes earlier calls and their results, by rendering conversations with marks, and brings conversations into
 * that form. Templates leave out the second call of a message, the words beside calls, or all calls; they refuse ids of another form
 * than their own.
 */
import { CallArguments } from './call-arguments.js';
import { KEY, probeTool, type Render } from './call-probes.js';
import { textOf, withMessages } from './conversation.js';
import type { PromptConversation, PromptMessage, PromptToolCall } from './conversation.js';
import { createHash } from 'node:crypto';

/** The ids of calls as a template needs them. `names`: `functions.NAME:NUMBER`, counted in the conversation or in the message. */
export type CallIds = 'names' | 'names-in-message' | 'nine';

/** How a template takes earlier calls. */
export interface CallForm {
  /** A message with several calls becomes a message for each, with its result behind it. */
  readonly apart?: boolean;
  /** Words beside calls become a message of their own before the calls. */
  readonly wordsApart?: boolean;
  /** Absent: the caller's. */
  readonly ids?: CallIds;
}

const MARK = {
  question: 'probe-question',
  values: ['probe-first', 'probe-second'],
  results: ['probe-one', 'probe-two'],
  words: 'probe-words',
  answer: 'probe-answer',
  more: 'probe-more',
} as const;
const NAMES = ['probe_look', 'probe_wander'] as const;
const NINE = ['probe0001', 'probe0002'] as const;
/** As OpenAI's servers make ids. */
const LONG = ['call_Probe0001AbCdEfGhIjKlMn', 'call_Probe0002AbCdEfGhIjKlMn'] as const;

const USER: PromptMessage = { role: 'user', content: MARK.question };
const THANKS: PromptMessage = { role: 'user', content: MARK.more };
const TOOLS = NAMES.map(probeTool);

function calling(ids: readonly string[], content: string | null = null): PromptMessage[] {
  const calls = ids.map((id, i) => ({
    id,
    type: 'function',
    function: { name: NAMES[i] ?? '', arguments: JSON.stringify({ [KEY]: MARK.values[i] }) },
  }));
  const results = ids.map((id, i) => ({ role: 'tool', tool_call_id: id, content: MARK.results[i] ?? '' }));
  return [{ role: 'assistant', content, tool_calls: calls }, ...results];
}

/** A call in each of two messages. */
const IN_TURN = oneByOne(calling(LONG));

const FORMS: readonly CallForm[] = [false, true].flatMap((apart) =>
  [false, true].map((wordsApart) => ({ ...(apart && { apart }), ...(wordsApart && { wordsApart }) })),
);

/** Undefined if the template shows calls in no form, so that they have to be written as text. `lists`: it is given the tools. */
export function callFormOf(render: Render, lists: boolean): CallForm | undefined {
  const rendered = (messages: readonly PromptMessage[], form: CallForm): string | undefined =>
    render(inCallForm({ messages, ...(lists && { tools: TOOLS }) }, form));
  const shows = (form: CallForm, ids: readonly string[], words: readonly string[]): boolean => {
    const turn = calling(ids, words[0]);
    const open = rendered([USER, ...calling(ids)], form);
    const closed = rendered([USER, ...turn, { role: 'assistant', content: MARK.answer }, THANKS], form);
    const parts = [...MARK.values.slice(0, ids.length), ...MARK.results.slice(0, ids.length)];
    return inTurn(open, parts) && inTurn(closed, [...parts, ...words]);
  };
  // Nothing is as important as the calls. Words that no form shows are left out.
  for (const words of [[MARK.words], []]) {
    const form = FORMS.find((each) => shows(each, NINE, words));
    if (form === undefined) continue;
    const ids = idsOf((each) => rendered([USER, ...IN_TURN], { ...form, ...each }));
    return { ...form, ...ids };
  }
  return undefined;
}

/** Whether the marks come out after the question, and both functions' names with them. */
function inTurn(text: string | undefined, parts: readonly string[]): boolean {
  if (text === undefined) return false;
  return parts.every((part) => text.includes(part));
}

/** The first form of ids in which a result has the id that its call has. Ids may be left out altogether. */
function idsOf(rendered: (form: CallForm) => string | undefined): CallForm {
  const forms: CallForm[] = [{}, { ids: 'nine' }, { ids: 'names' }, { ids: 'names-in-message' }];
  const paired = (form: CallForm): boolean => {
    const text = rendered(form);
    const { messages } = withIds({ messages: IN_TURN }, form.ids);
    const ids = messages.flatMap(({ tool_calls: calls = [] }) => calls.map(({ id }) => id));
    return text !== undefined && ids.every((id) => text.split(id).length !== 2) && showsNames(text);
  };
  return forms.find(paired) ?? {};
}

/** The tools' names stand in the call too: more often than the tools alone write them, or in an id. */
function showsNames(text: string): boolean {
  const turn = text.slice(text.lastIndexOf(MARK.question));
  return NAMES.every((name) => turn.includes(name));
}

/** Calls and results in the form. Each call has one result, behind it (history.ts). */
export function inCallForm(conversation: PromptConversation, form: CallForm): PromptConversation {
  const { messages } = conversation;
  if (!messages.some(({ role, tool_calls: calls }) => role === 'tool' || calls !== undefined)) return conversation;
  const words = form.wordsApart === true ? messages.flatMap(withoutWords) : messages;
  const split = form.apart === true ? oneByOne(words) : words;
  return withIds(withMessages(conversation, split), form.ids);
}

function withoutWords(message: PromptMessage): PromptMessage[] {
  const { tool_calls: calls = [], reasoning_content: thought, ...said } = message;
  if (calls.length === 0 || textOf(message.content) === undefined) return [message];
  const thoughts = thought ? { reasoning_content: thought } : {};
  const { name } = said;
  return [
    { ...said, ...thoughts },
    { role: message.role, content: null, tool_calls: calls, ...(name !== undefined && { name }) },
  ];
}

function oneByOne(messages: readonly PromptMessage[]): PromptMessage[] {
  const split: PromptMessage[] = [];
  for (let at = 0; at < messages.length; at++) {
    const message = messages[at];
    if (message === undefined) continue;
    const { tool_calls: calls = [], role } = message;
    if (calls.length < 2) {
      split.push(message);
      continue;
    }
    const results = messages.slice(at + 1, at + 1 + calls.length);
    for (const [i, call] of calls.entries()) {
      const result = results[i];
      const own = i === 0 ? message : { role, content: null };
      split.push(Object.assign({}, own, { tool_calls: [call] }), ...(result ? [result] : []));
    }
    at += results.length;
  }
  return split;
}

/** The conversation with ids of this form, those of results too. */
export function withIds(conversation: PromptConversation, form: CallIds | undefined): PromptConversation {
  if (form === undefined) return conversation;
  const ids = new Map<string, string>();
  let calls = 0;
  const renamed = conversation.messages.map((message) => {
    const { tool_calls: made, tool_call_id: answered } = message;
    const named = made?.map((call, i) => {
      const id = form === 'nine' ? nineOf(call) : `functions.${call.function.name}:${form === 'names' ? calls : i}`;
      calls += 1;
      ids.set(call.id, id);
      return Object.assign({}, call, { id });
    });
    const result = answered === undefined ? undefined : ids.get(answered);
    return { ...message, ...(named && { tool_calls: named }), ...(result !== undefined && { tool_call_id: result }) };
  });
  return withMessages(conversation, renamed);
}

/** Nine letters and digits: the id itself, or the same for the same id. */
function nineOf({ id }: PromptToolCall): string {
  if (/^[A-Za-z0-9]{9}$/.test(id)) return id;
  const digest = createHash('sha256').update(id).digest('hex');
  return BigInt(`0x${digest}`).toString(36).slice(-9);
}

/*
 * For templates that read the results of calls from the message that calls, as Gemma 4's first ones do: results in their own
 * messages would not be in the model's format.
 */

/** One result as these templates have it. */
interface EmbeddedResult {
  readonly name: string;
  /** JSON where it is that, else text. */
  readonly response: unknown;
}

interface EmbeddingMessage extends PromptMessage {
  readonly tool_responses?: readonly EmbeddedResult[];
}

/**
 * The results that follow a message with calls become part of it, and so does the content of a reply without calls that follows
 * them, in place of the message's own: the template has no place for both.
 */
export function withEmbeddedResults(conversation: PromptConversation): PromptConversation {
  const { messages } = conversation;
  const given = new CallArguments();
  const embedded: EmbeddingMessage[] = [];
  for (let at = 0; at < messages.length; at++) {
    const message = messages[at];
    if (message === undefined) continue;
    const results: EmbeddedResult[] = [];
    const calls = message.role === 'assistant' ? (message.tool_calls ?? []) : [];
    for (let next = messages[at + 1]; calls.length > 0 && next?.role === 'tool'; next = messages[at + 1]) {
      const { tool_call_id: id = '', content } = next;
      const called = calls.find((call) => call.id === id) ?? calls[results.length];
      results.push({ name: called?.function.name ?? id, response: valueOf(textOf(content) ?? '', given) });
      at += 1;
    }
    const after = messages[at + 1];
    const answers = results.length > 0 && after?.role === 'assistant' && (after.tool_calls ?? []).length === 0;
    const said = answers ? textOf(after.content) : undefined;
    if (said !== undefined) at += 1;
    const holder = { content: said ?? null, tool_responses: results };
    embedded.push(results.length === 0 ? message : Object.assign({}, message, holder));
  }
  return withMessages(conversation, embedded);
}

/** Text that is no JSON, or too much of it, is a string. */
function valueOf(text: string, given: CallArguments): unknown {
  try {
    return text.trim() === '' ? text : given.parse(text);
  } catch {
    return text;
  }
}
