/** The system message that lists the tools, for a template that lists none or a model whose call format is not known. */
import { CALLED } from '../output/calls/expected-text.js';
import type { CallSyntax } from '../protocol/reply-format.js';
import {
  joinedTexts,
  shapeTool,
  textOf,
  withMessages,
  type PromptConversation,
  type PromptMessage,
  type PromptToolCall,
} from './conversation.js';
import { unusedMark } from './data-text.js';
import type { ToolUse } from './tool-use.js';
import { WRAPPED } from './call-syntax.js';

/** Part of the prompt, since models are not trained on WRAPPED (call-syntax.ts). */
const WRAPPED_INSTRUCTION =
  'Reply with one JSON object and nothing else. To call tools: ' +
  '{"tool_calls": [{"name": "<name>", "arguments": {<arguments>}}]}. To answer: {"response": "<answer>"}.';

/** The same where the answer itself is to be a JSON object, which then stands as it is. */
const WRAPPED_JSON_INSTRUCTION =
  'Reply with one JSON object and nothing else. To call tools: ' +
  '{"tool_calls": [{"name": "<name>", "arguments": {<arguments>}}]}. To answer: the answer as a JSON object.';

/** The conversation that the template is given. */
export interface InstructedConversation {
  readonly conversation: PromptConversation;
  /**
   * Our own text that takes the place of `mark` once the prompt is rendered: its marks are control tokens, unlike those
   * of callers.
   */
  readonly trusted?: { readonly mark: string; readonly text: string };
}

/** `offered`: the tools may be called. `json`: the answer is to be JSON. */
export function withToolInstructions(
  conversation: PromptConversation,
  use: ToolUse,
  { offered, json }: { readonly offered: boolean; readonly json: boolean },
): InstructedConversation {
  const { calls, lists, shows } = use;
  const shown = shows ? conversation : callsAsText(conversation, calls);
  if (!offered || calls === undefined) return { conversation: shown };
  const list = lists ? [] : [toolList(shown.tools ?? [])];
  const rest = lists ? shown : { messages: shown.messages };
  if (calls.answer !== undefined) {
    const instruction = json ? WRAPPED_JSON_INSTRUCTION : WRAPPED_INSTRUCTION;
    return { conversation: withSystem(rest, [...list, instruction].join('\n\n')) };
  }
  if (lists) return { conversation: shown };
  const mark = unusedMark(conversation);
  const how = formatText(calls);
  const instructed = withSystem(rest, [...list, mark ?? how].join('\n\n'));
  return { conversation: instructed, ...(mark !== undefined && { trusted: { mark, text: how } }) };
}

/** A rendered text with the trusted one in its place, which a template may have written as an escape of JSON. */
export function withTrusted(text: string, trusted: InstructedConversation['trusted']): string {
  if (trusted === undefined) return text;
  const escape = `\\u${trusted.mark.charCodeAt(0).toString(16)}`;
  return text.replaceAll(escape, trusted.mark).replaceAll(trusted.mark, () => trusted.text);
}

function toolList(tools: readonly object[]): string {
  const each = tools.map(shapeTool).map(({ function: { name, description, parameters } }) => {
    const says = description === '' ? '' : `Description: ${description}\n\n`;
    return `### ${name}\n${says}Parameters: ${JSON.stringify(parameters)}`;
  });
  return ['## Tools\nYou have access to the following tools:', ...each].join('\n\n');
}

/** The format of calls, shown on tools and arguments that do not exist. */
function formatText({ lead = '', open, between, next, close, arguments: notation }: CallSyntax): string {
  const call = (name: string): string => `${name}${between}${exampleOf(notation)}`;
  const write = (calls: string): string =>
    `${lead}${open}${calls}${close}`.replaceAll('\0', '0').replaceAll(CALLED, 'tool_name').trim();
  const several =
    next === undefined ? [] : ['Several calls:', write(`${call('tool_name')}${next}${call('other_tool_name')}`)];
  return [
    'To use a tool, write a call in exactly this format, with the name of the tool, and arguments that are valid by its parameters:',
    write(call('tool_name')),
    ...several,
  ].join('\n\n');
}

function exampleOf(notation: CallSyntax['arguments']): string {
  switch (notation?.kind) {
    case undefined:
      return '{"parameter": "value"}';
    case 'tagged':
      return `${notation.open}parameter${notation.between.string}value${notation.close}`;
    case 'nested':
      return `${notation.prefix}<parameter>value${notation.prefix}</parameter>`;
    case 'bare':
      return `{parameter:${notation.quote}value${notation.quote}}`;
    case 'keywords':
      return 'parameter="value"';
  }
}

/** With this text at the end of the first system message. */
function withSystem(conversation: PromptConversation, text: string): PromptConversation {
  const [first, ...rest] = conversation.messages;
  if (first?.role !== 'system')
    return withMessages(conversation, [{ role: 'system', content: text }, ...conversation.messages]);
  const own = textOf(first.content);
  const content = own === undefined ? text : `${own}\n\n${text}`;
  return withMessages(conversation, [Object.assign({}, first, { content }), ...rest]);
}

/* Earlier calls and their results as plain text, for templates that leave them out or do not take them. */

/**
 * Calls become text of the assistant in the model's own format, or as JSON where its arguments are not. Results become one
 * text of the user, together with the user's message that follows them: many templates take no two in a row. A space keeps the
 * caller's own text from reading as a call or a result.
 */
function callsAsText(conversation: PromptConversation, syntax: CallSyntax = WRAPPED): PromptConversation {
  const names = new Map<string, string>();
  const messages: PromptMessage[] = [];
  const { head } = textForm(syntax);
  let results: string[] = [];
  const flush = (more: readonly string[] = []): void => {
    if (results.length > 0) messages.push({ role: 'user', content: [...results, ...more].join('\n\n') });
    results = [];
  };
  for (const message of conversation.messages) {
    const { role, content, tool_calls: calls = [], ...rest } = message;
    const given = textOf(content);
    if (role === 'tool') {
      const name = message.name ?? names.get(message.tool_call_id ?? '');
      results.push(JSON.stringify({ [RESULT]: { name, content: given ?? '' } }));
      continue;
    }
    const text = given === undefined ? undefined : spaced(given, role === 'assistant' ? head : RESULT_HEAD);
    if (role === 'user' && results.length > 0) {
      flush(text === undefined ? [] : [text]);
      continue;
    }
    flush();
    for (const { id, function: called } of calls) names.set(id, called.name);
    const written = calls.length > 0 ? joinedTexts([text, callText(calls, syntax)]) : text;
    const shown = { role, content: written ?? null };
    messages.push(calls.length > 0 || text !== given ? Object.assign(rest, shown) : message);
  }
  flush();
  const same = messages.every((message, at) => message === conversation.messages[at]);
  return same ? conversation : withMessages(conversation, messages);
}

const RESULT = 'tool_result';
const RESULT_HEAD = `{"${RESULT}":`;

/** A text with a space more behind the first character of each `head` in it, also of those that have spaces there. */
function spaced(text: string, head: string): string {
  const [first = ''] = head;
  const rest = head.slice(first.length);
  if (rest === '' || !text.includes(rest)) return text;
  return text.replace(new RegExp(`${escaped(first)}(?= *${escaped(rest)})`, 'gu'), '$& ');
}

function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
}

/** The parts of a syntax whose arguments are JSON, else of the instruction's. `head`: what all calls begin with. */
function textForm(syntax: CallSyntax): Pick<CallSyntax, 'open' | 'between' | 'next' | 'close'> & { head: string } {
  const form = syntax.arguments === undefined ? syntax : WRAPPED;
  return { head: form.open.replaceAll('\0', '0').trim(), ...form };
}

/** A slash is escaped behind `<`: in a reply's text templates look for the marks of a thought. */
function callText(calls: readonly PromptToolCall[], syntax: CallSyntax): string {
  const { open, between, next = ', ', close } = textForm(syntax);
  const each = calls.map(({ function: { name, arguments: given } }) => {
    const object = given.trim() || '{}';
    return `${name}${between}${object.replaceAll('</', '<\\/')}`;
  });
  return `${open}${each.join(next)}${close}`.replaceAll('\0', '0').trim();
}
