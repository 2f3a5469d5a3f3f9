import { parseArguments } from './call-arguments.js';

/**
 * What a chat template is given. Names are the wire's, since templates read them. Structurally the sidecar's checked
 * conversation; spelled out here because the engine's folder never imports the sidecar's.
 */
export interface PromptMessage {
  readonly role: string;
  readonly content?: string | readonly PromptPart[] | null;
  readonly name?: string;
  readonly reasoning_content?: string | null;
  readonly tool_calls?: readonly PromptToolCall[];
  readonly tool_call_id?: string;
}

export interface PromptPart {
  readonly type: string;
  readonly text?: string;
}

export interface PromptToolCall {
  readonly id: string;
  readonly type: string;
  /** `arguments` is JSON text. */
  readonly function: { readonly name: string; readonly arguments: string };
}

export interface PromptConversation {
  readonly messages: readonly PromptMessage[];
  readonly tools?: readonly object[];
}

/** The conversation with these messages in place of its own. */
export function withMessages({ tools }: PromptConversation, messages: readonly PromptMessage[]): PromptConversation {
  return { messages, ...(tools && { tools }) };
}

/** The forms of one and the same conversation that templates differ over; probed once per template. */
export interface Shape {
  /** How content is handed over. */
  readonly content: 'string' | 'parts';
  /** How a tool call's arguments are handed over. */
  readonly arguments: 'object' | 'string';
  /** What stands for the content of an assistant message that has none. */
  readonly noContent: '' | null;
  /** What stands for the content of a reply that says nothing and calls nothing: text, or a part of it. */
  readonly noReply?: 'part';
  /**
   * How an assistant's thought is handed over: by one of two names, by the second one without the content that goes with a call, or as
   * a part of the content.
   */
  readonly thought: 'reasoning_content' | 'thinking' | 'thinking-alone' | 'part';
  /** What `tools` is when none are offered: some templates loop over it unasked, some ask only whether it is none. */
  readonly noTools: 'absent' | 'null' | 'empty';
  /** False: the template has no system role, so a leading system message is put before the next one's text, as llama.cpp does. */
  readonly system: boolean;
  /** The template does not take two leading system messages, or not beside tools, so that all leading ones become one. */
  readonly joinsSystem?: boolean | 'beside tools';
  /** The template reads the tools as JSON text under the name `functions`. */
  readonly functions?: boolean;
  /** Marks by which the template itself takes a thought out of an assistant's content. */
  readonly marks?: ThoughtMarks;
}

/** What stands around a thought within content. */
export interface ThoughtMarks {
  readonly start: string;
  readonly end: string;
  /**
   * What is taken off the beginning of the text after it: line ends, nothing, white space at both ends, or one line end. With
   * `exactly` nothing is taken off the thought either.
   */
  readonly rest: 'lines' | 'as it is' | 'trimmed' | 'after a line' | 'exactly';
}

/** A conversation in the form that one template copes with: plain JSON values. */
export interface Shaped {
  readonly messages: readonly object[];
  readonly tools?: readonly object[] | null;
  readonly functions?: string;
}

/**
 * Brings a conversation into a template's form. Text parts are joined with a newline whatever the template takes (llama.cpp's
 * join): were they handed over one by one, a template could put two of them side by side and make a marker out of halves.
 * The arguments of calls are JSON (history.ts): a SyntaxError is thrown where they are not.
 */
export function shapeConversation(conversation: PromptConversation, shape: Shape): Shaped {
  const hasTools = conversation.tools !== undefined && conversation.tools.length > 0;
  const joins = shape.joinsSystem === true || (shape.joinsSystem === 'beside tools' && hasTools);
  const led = joins ? joinSystem(conversation.messages) : conversation.messages;
  const messages = shape.system ? led : mergeSystem(led);
  const shaped = messages.map((message) => shapeMessage(message, shape));
  if (conversation.tools && hasTools) {
    const tools = conversation.tools.map(shapeTool);
    if (shape.functions !== true) return { messages: shaped, tools };
    // As the documentation of firefunction-v2 has it.
    return {
      messages: shaped,
      tools,
      functions: JSON.stringify(
        tools.map((tool) => tool.function),
        null,
        4,
      ),
    };
  }
  if (shape.noTools === 'absent') return { messages: shaped };
  return { messages: shaped, tools: shape.noTools === 'null' ? null : [] };
}

/** Roles whose messages have content, if an empty one. */
const SPOKEN: ReadonlySet<string> = new Set(['system', 'user', 'tool']);

interface ShapedFunction {
  readonly name: string;
  readonly description: string;
  readonly parameters: unknown;
}

/** Name, description and parameters in this order and no more, as llama-server has it: `strict` is for the sidecar and not for the model. */
export function shapeTool(tool: object): { readonly type: 'function'; readonly function: ShapedFunction } {
  const { function: called } = tool as { function: { name: string; description?: string; parameters?: unknown } };
  const { name, description = '', parameters = {} } = called;
  return { type: 'function', function: { name, description, parameters } };
}

function shapeMessage(given: PromptMessage, shape: Shape): object {
  const message = withThought(given, shape.marks);
  const { content, reasoning_content: reasoning, tool_calls: calls, ...rest } = message;
  const says = calls !== undefined && calls.length > 0 ? undefined : '';
  const text = textOf(content) ?? (SPOKEN.has(message.role) ? '' : says);
  const isEmpty = text === '' && message.role === 'assistant' && shape.noReply === 'part';
  return Object.assign(rest, {
    content: isEmpty ? [{ type: 'text', text }] : shapeContent(text, shape),
    ...(calls && calls.length > 0 ? { tool_calls: calls.map((call) => shapeCall(call, shape)) } : {}),
    ...(reasoning ? shapeThought(reasoning, message, shape) : {}),
  });
}

/**
 * A thought within an assistant's content becomes what it is, as the template would do: by the time that it looks, the marks
 * in callers' text are broken up. Marks in the text of users and tools stay text.
 */
function withThought(message: PromptMessage, marks: ThoughtMarks | undefined): PromptMessage {
  const text = textOf(message.content);
  if (message.role !== 'assistant' || marks === undefined || text === undefined) return message;
  const end = text.indexOf(marks.end);
  if (message.reasoning_content || end < 0) return message;
  const lead = text.slice(0, end);
  const start = lead.lastIndexOf(marks.start);
  const thought = start < 0 ? lead : lead.slice(start + marks.start.length);
  const rest = text.slice(text.lastIndexOf(marks.end) + marks.end.length);
  const reasoning = marks.rest === 'exactly' ? thought : thought.replace(/^\n+|\n+$/g, '');
  return Object.assign({}, message, { content: RESTS[marks.rest](rest), reasoning_content: reasoning });
}

const RESTS: Readonly<Record<ThoughtMarks['rest'], (text: string) => string>> = {
  lines: (text) => text.replace(/^\n+/, ''),
  'as it is': (text) => text,
  trimmed: (text) => text.trim(),
  'after a line': (text) => text.replace(/^\n/, ''),
  exactly: (text) => text,
};

/** Laid over the message. */
function shapeThought(thought: string, { content, tool_calls: calls }: PromptMessage, shape: Shape): object {
  const text = textOf(content);
  switch (shape.thought) {
    case 'reasoning_content':
      return { reasoning_content: thought };
    case 'thinking':
      return { reasoning_content: thought, thinking: thought };
    case 'thinking-alone':
      return { reasoning_content: thought, thinking: thought, ...(calls && calls.length > 0 && { content: '' }) };
    case 'part':
      return {
        content: [{ type: 'thinking', thinking: thought }, ...(text === undefined ? [] : [{ type: 'text', text }])],
      };
  }
}

function shapeContent(text: string | undefined, shape: Shape): unknown {
  if (text === undefined) return shape.noContent;
  return shape.content === 'string' ? text : [{ type: 'text', text }];
}

/** Of a call no more than templates know: some write down whatever they are given. */
function shapeCall({ id, type, function: called }: PromptToolCall, shape: Shape): object {
  const call = { id, type, function: called };
  if (shape.arguments === 'string') return call;
  return { id, type, function: Object.assign({ ...called }, { arguments: parseArguments(called.arguments) }) };
}

/** The message's text; undefined when it has none. */
export function textOf(content: PromptMessage['content']): string | undefined {
  if (content === undefined || content === null || content === '') return undefined;
  if (typeof content === 'string') return content;
  return content.flatMap((part) => (part.type === 'text' && part.text !== undefined ? [part.text] : [])).join('\n');
}

/** Several messages of the assistant as one, with the first one's calls, and blank lines between their texts and thoughts. */
export function joinedReply(messages: readonly [PromptMessage, ...PromptMessage[]]): PromptMessage {
  const content = joinedTexts(messages.map((each) => textOf(each.content)));
  const thought = joinedTexts(messages.map((each) => each.reasoning_content));
  return Object.assign({}, messages[0], {
    content: content === '' ? null : content,
    ...(thought !== '' && { reasoning_content: thought }),
  });
}

/** Without those that are empty, with a blank line between the others. */
export function joinedTexts(texts: readonly (string | null | undefined)[]): string {
  return texts.filter((text) => text).join('\n\n');
}

/** The system messages at the beginning as one, with a blank line between their texts. */
function joinSystem(messages: readonly PromptMessage[]): readonly PromptMessage[] {
  const others = messages.findIndex(({ role }) => role !== 'system');
  const leading = others < 0 ? messages : messages.slice(0, others);
  const [first] = leading;
  if (first === undefined || leading.length === 1) return messages;
  const content = joinedTexts(leading.map((message) => textOf(message.content)));
  return [Object.assign({}, first, { content }), ...messages.slice(leading.length)];
}

function mergeSystem(messages: readonly PromptMessage[]): readonly PromptMessage[] {
  const [first, second, ...rest] = messages;
  if (first?.role !== 'system') return messages;
  // Alone it is all that there is to answer. llama.cpp leaves it out, and the model with nothing.
  if (second === undefined) return [Object.assign({}, first, { role: 'user' })];
  const text = `${textOf(first.content) ?? ''}\n${textOf(second.content) ?? ''}`;
  return [Object.assign({}, second, { content: text }), ...rest];
}
