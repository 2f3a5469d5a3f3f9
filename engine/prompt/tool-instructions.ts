/** The system message that lists the tools, for a template that lists none or a model whose call format is not known. */
import { CALLED } from '../output/calls/expected-text.js';
import type { CallSyntax } from '../protocol/reply-format.js';
import { shapeTool, textOf, type PromptConversation, type PromptMessage } from './conversation.js';
import { callsAsText } from './calls-as-text.js';
import { unusedMark } from './data-text.js';
import type { ToolUse } from './tool-use.js';

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
  return withMessages(conversation, [{ ...first, content: own === undefined ? text : `${own}\n\n${text}` }, ...rest]);
}

function withMessages(conversation: PromptConversation, messages: readonly PromptMessage[]): PromptConversation {
  return { ...conversation, messages };
}
