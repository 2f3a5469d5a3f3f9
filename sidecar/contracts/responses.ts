/** Bodies of POST /responses, brought into the form of chat requests. */
import { callChoiceOf, checkTools, paramsOf, type ChatBody } from './chat.js';
import { checkOf, sessionIdOf, thoughtBudgetOf, tierOf, toolOf, withoutNulls } from './compatible.js';
import { pathOf, type Parsed, refuse } from './body-refusals.js';
import type { ChatParams, ChatRequest, ContentPart, Message, MessagePlace, Tool, ToolCall } from './requests.js';
import { RESPONSES_SCHEMA, type FunctionTool } from './responses-schema.js';
import type { ValueOf } from './validator.js';

interface InputPart {
  readonly type: string;
  readonly text?: string;
  readonly refusal?: string;
  readonly image_url?: string | null;
  readonly detail?: string | null;
}

type Content = string | readonly InputPart[];

interface Namespace {
  readonly type: 'namespace';
  readonly name: string;
  readonly description?: string | null;
  readonly tools: readonly (FunctionTool | ForeignTool)[];
}

/** A tool of any other type. */
interface ForeignTool {
  readonly type: string;
  readonly name?: never;
}

type WideTool = FunctionTool | Namespace | ForeignTool;

interface MessageItem {
  readonly type?: 'message';
  readonly role: 'user' | 'system' | 'developer' | 'assistant';
  readonly content: Content;
}

/** The item of a call, or of its result, of a tool that is no function. */
interface ForeignItem {
  readonly type: string;
  readonly role?: never;
  readonly [field: string]: unknown;
}

type KnownItem =
  | MessageItem
  | {
      readonly type: 'function_call';
      readonly call_id: string;
      readonly name: string;
      readonly namespace?: string | null;
      readonly arguments: string;
    }
  | { readonly type: 'function_call_output'; readonly call_id: string; readonly output: Content | null }
  | { readonly type: 'additional_tools'; readonly tools: readonly WideTool[] | null }
  | {
      readonly type: 'reasoning';
      readonly summary?: readonly InputPart[] | null;
      readonly content?: readonly InputPart[] | null;
    };

/** A body that passed its schema. */
interface ResponsesBody extends Omit<ValueOf<typeof RESPONSES_SCHEMA>, 'input' | 'text' | 'tool_choice' | 'tools'> {
  readonly input: string | readonly (KnownItem | ForeignItem)[];
  readonly tools?: readonly WideTool[] | null;
  readonly tool_choice?:
    | 'none'
    | 'auto'
    | 'required'
    | { readonly type: string; readonly name?: string; readonly namespace?: string | null }
    | null;
  readonly text?: {
    readonly format?: { readonly type: 'text' | 'json_object' | 'json_schema'; readonly schema?: object } | null;
  } | null;
}

const check = checkOf<ResponsesBody>(RESPONSES_SCHEMA, 'responses');

/** Checks a body of POST /responses against its contract. */
export function toResponsesRequest(value: unknown): Parsed<ChatRequest> {
  const checked = check(value);
  if (checked.kind === 'invalid') return checked;
  const body = checked.request;
  const offers = offersOf(body);
  if (offers.functions.length > MAX_FUNCTIONS)
    return refuse('tools', `must have at most ${MAX_FUNCTIONS} functions, those in namespaces included`);
  const { messages, places } = messagesOf(body);
  const chat = chatOf(body, messages, offers);
  const impossible = checkImages(body.input) ?? checkChoice(body) ?? checkTools(chat, namesOf(offers));
  if (impossible !== undefined) return impossible;
  const tools = chat.tool_choice === 'none' ? undefined : chat.tools;
  const params = { ...paramsOf(chat, tools && callChoiceOf(chat)), ...sessionIdOf(body), ...tierOf(body) };
  const schema = body.text?.format?.schema;
  return {
    kind: 'ok',
    request: {
      params: {
        ...params,
        ...(params.firstImage !== undefined && { firstImage: firstImageOf(messages, places) }),
        ...thoughtBudgetOf(body.reasoning?.max_tokens),
        ...toolParams(offers, tools !== undefined),
      },
      conversation: { messages: chat.messages, ...(tools && { tools }) },
      ...(schema && { replySchema: schema, replySchemaAt: ['text', 'format', 'schema'] }),
      places,
      ...(tools && { toolPlaces: offers.places }),
    },
  };
}

/** Functions of one request, those in namespaces included: four times what OpenAI takes at the top. */
const MAX_FUNCTIONS = 512;

/** Types of tools that other servers have. A header repeats them; it says `other` for a type that is not among them. */
const FOREIGN_TOOLS: ReadonlySet<string> = new Set([
  ...['web_search', 'web_search_preview', 'file_search', 'code_interpreter', 'image_generation', 'mcp', 'custom'],
  ...['computer', 'computer_use', 'computer_use_preview', 'local_shell', 'shell', 'apply_patch', 'tool_search'],
  ...['programmatic_tool_calling', 'namespace'],
]);

function knownType(type: string): string {
  return FOREIGN_TOOLS.has(type) ? type : 'other';
}

/** What a body offers of tools. */
interface Offers {
  readonly functions: Tool[];
  /** Paths, of the same indexes as the functions. */
  readonly places: string[];
  readonly leftOut: Set<string>;
  /** As {@link ChatParams.namespaces}. */
  readonly namespaces: Record<string, string>;
}

function offersOf({ tools, input }: ResponsesBody): Offers {
  const offers: Offers = { functions: [], places: [], leftOut: new Set(), namespaces: {} };
  addTools(offers, tools, 'tools');
  if (typeof input === 'string') return offers;
  for (const [i, item] of input.entries()) {
    if (isOf(item, 'additional_tools')) addTools(offers, item.tools, `input[${i}].tools`);
  }
  return offers;
}

function addTools(offers: Offers, tools: readonly WideTool[] | null | undefined, at: string): void {
  for (const [i, tool] of (tools ?? []).entries()) {
    if (isNamespace(tool)) addNamespace(offers, tool, `${at}[${i}]`);
    else addTool(offers, tool, `${at}[${i}]`, (name) => name);
  }
}

/** The description of a namespace stands in front of that of its first function: templates have no other place for it. */
function addNamespace(offers: Offers, { name: namespace, description, tools }: Namespace, at: string): void {
  let about = typeof description === 'string' && description !== '' ? `${namespace}: ${description}` : undefined;
  for (const [i, tool] of tools.entries()) {
    if (!isFunction(tool)) {
      addTool(offers, tool, '', (name) => name);
      continue;
    }
    const described = about === undefined ? tool.description : [about, tool.description ?? ''].join('\n\n').trimEnd();
    about = undefined;
    const offered = namespacedName(namespace, tool.name);
    offers.namespaces[offered] = namespace;
    addTool(offers, { ...tool, ...(described && { description: described }) }, `${at}.tools[${i}]`, () => offered);
  }
}

function addTool(
  { functions, places, leftOut }: Offers,
  tool: FunctionTool | ForeignTool,
  at: string,
  nameOf: (name: string) => string,
): void {
  if (!isFunction(tool)) {
    leftOut.add(knownType(tool.type));
    return;
  }
  const { type, ...described } = tool;
  functions.push(toolOf({ type, function: { ...described, name: nameOf(tool.name) } }));
  places.push(at);
}

function isFunction(tool: WideTool): tool is FunctionTool {
  return tool.type === 'function';
}

function isNamespace(tool: WideTool): tool is Namespace {
  return tool.type === 'namespace';
}

function isOf<Type extends KnownItem['type']>(
  item: KnownItem | ForeignItem,
  type: Type,
): item is Extract<KnownItem, { readonly type: Type }> {
  return item.type === type;
}

/** The namespace of functions that are in none, at OpenAI's models. */
const DEFAULT_NAMESPACE = 'functions';

/** The name under which a function of a namespace is offered to the model. */
function namespacedName(namespace: string, name: string): string {
  return namespace === DEFAULT_NAMESPACE ? name : `${namespace}__${name}`;
}

/** The function that an offered name is of, as the caller has it. */
export function functionNamed(
  offered: string,
  { namespaces }: Pick<ChatParams, 'namespaces'>,
): { readonly name: string; readonly namespace?: string } {
  const namespace = namespaces && Object.hasOwn(namespaces, offered) ? namespaces[offered] : undefined;
  if (namespace === undefined) return { name: offered };
  return { name: offered.slice(namespacedName(namespace, '').length), namespace };
}

function toolParams(
  { leftOut, namespaces }: Offers,
  offered: boolean,
): Pick<ChatParams, 'toolsLeftOut' | 'namespaces'> {
  return {
    ...(leftOut.size > 0 && { toolsLeftOut: [...leftOut] }),
    ...(offered && Object.keys(namespaces).length > 0 && { namespaces }),
  };
}

/** Where a body names functions. */
function namesOf({ places }: Offers): { tool: (at: number) => string; choice: string } {
  return { tool: (at) => `${places[at] ?? 'tools'}.name`, choice: 'tool_choice.name' };
}

/** Why a choice of a tool that is no function is refused. */
function checkChoice({ tool_choice: choice }: ResponsesBody): Parsed<never> | undefined {
  if (typeof choice !== 'object' || choice === null || choice.type === 'function') return undefined;
  const type = knownType(choice.type);
  const why = type === 'other' ? 'no other choice is served' : `${type} is not served, and was left out of the tools`;
  return refuse('tool_choice.type', `must be function: ${why}`);
}

/** Why an image is not where chat templates take one; undefined if all are. */
function checkImages(input: ResponsesBody['input']): Parsed<never> | undefined {
  if (typeof input === 'string') return undefined;
  for (const [i, item] of input.entries()) {
    if (!isMessage(item) || item.role === 'user' || typeof item.content === 'string') continue;
    const image = item.content.findIndex(({ type }) => type === 'input_image');
    if (image < 0) continue;
    const path = pathOf(['input', String(i), 'content', String(image)]);
    return refuse(path, 'must not be an image: only messages of the role user may have images');
  }
  return undefined;
}

function isMessage(item: KnownItem | ForeignItem): item is MessageItem {
  return item.type === undefined || item.type === 'message';
}

/** The path of the first image of a user's message. */
function firstImageOf(messages: readonly Message[], places: readonly MessagePlace[]): string {
  for (const [i, { role, content }] of messages.entries()) {
    if (role !== 'user' || typeof content === 'string') continue;
    const part = content.findIndex(({ type }) => type === 'image_url');
    if (part >= 0) return `${places[i]?.at ?? 'input'}.content[${part}]`;
  }
  return 'input';
}

function chatOf(body: ResponsesBody, messages: readonly Message[], { functions }: Offers): ChatBody {
  const { model, tool_choice: choice, reasoning, text } = body;
  const effort = reasoning?.effort ?? (reasoning?.max_tokens === 0 ? 'none' : undefined);
  const format = text?.format?.type ?? 'text';
  return withoutNulls<ChatBody>({
    model,
    messages,
    max_completion_tokens: body.max_output_tokens,
    temperature: body.temperature,
    top_p: body.top_p,
    stream: body.stream,
    parallel_tool_calls: body.parallel_tool_calls,
    reasoning_effort: effort,
    user: body.user === '' ? null : body.user,
    tools: functions.length > 0 ? functions : null,
    tool_choice: choiceOf(choice),
    response_format: format === 'text' ? null : { type: 'json_object' },
  });
}

function choiceOf(choice: ResponsesBody['tool_choice']): ChatBody['tool_choice'] | null {
  if (typeof choice !== 'object' || choice === null) return choice;
  const { name = '', namespace } = choice;
  return { function: { name: typeof namespace === 'string' ? namespacedName(namespace, name) : name } };
}

function messagesOf({ instructions, input }: ResponsesBody): Messages {
  const messages = new Messages();
  if (typeof instructions === 'string') messages.add({ role: 'system', content: instructions }, 'instructions');
  if (typeof input === 'string') messages.add({ role: 'user', content: input }, 'input');
  else for (const [i, item] of input.entries()) messages.add(item, `input[${i}]`);
  return messages;
}

type Assistant = Extract<Message, { readonly role: 'assistant' }>;

/** Items in order as messages: consecutive reasoning, text and calls of the assistant become one message. */
class Messages {
  readonly messages: Message[] = [];
  /** Of the same indexes as the messages. */
  readonly places: MessagePlace[] = [];
  /** The last message, while it is the assistant's and may continue. */
  #last: Assistant | undefined;

  /** `at`: the item's path. */
  add(item: KnownItem | ForeignItem, at: string): void {
    if (isMessage(item)) this.#message(item.role, item.content, at);
    else if (isOf(item, 'reasoning'))
      this.#thought(textOf((item.content?.length ? item.content : item.summary) ?? []), at);
    else if (isOf(item, 'function_call')) {
      const { call_id: id, name, namespace, arguments: text } = item;
      const called = typeof namespace === 'string' ? namespacedName(namespace, name) : name;
      this.#call({ id, type: 'function', function: { name: called, arguments: text } }, at);
    } else if (isOf(item, 'function_call_output')) {
      this.#push({ role: 'tool', content: resultContent(item.output ?? ''), tool_call_id: item.call_id }, at);
    } else if (!isOf(item, 'additional_tools')) {
      const { role, text } = wordsOf(item);
      this.#message(role, text, at);
    }
  }

  /** A thought begins what the assistant does next. One that is encrypted has no text here. */
  #thought(text: string, at: string): void {
    this.#last = undefined;
    if (text !== '') this.#assistant({ reasoning_content: text }, at);
  }

  #message(role: 'user' | 'system' | 'developer' | 'assistant', content: Content, at: string): void {
    if (role === 'assistant') {
      if (this.#last?.content !== null || this.#last.tool_calls) this.#last = undefined;
      this.#assistant({ content: textOf(content) }, at);
    } else if (role === 'user')
      this.#push({ role, content: typeof content === 'string' ? content : content.map(partOf) }, at);
    else this.#push({ role: 'system', content: textOf(content) }, at);
  }

  #call(call: ToolCall, at: string): void {
    this.#assistant({ tool_calls: [...(this.#last?.tool_calls ?? []), call] }, at);
    const place = this.places.pop() ?? { at, calls: [] };
    this.places.push({ ...place, calls: [...place.calls, at] });
  }

  /** Adds to the assistant's last message, or begins one. */
  #assistant(more: Partial<Assistant>, at: string): void {
    const before: Assistant = this.#last ?? { role: 'assistant', content: null };
    const message: Assistant = { ...before, ...more };
    if (this.#last) this.messages.pop();
    else this.places.push({ at, calls: [] });
    this.messages.push(message);
    this.#last = message;
  }

  #push(message: Message, at: string): void {
    this.#last = undefined;
    this.messages.push(message);
    this.places.push({ at, calls: [] });
  }
}

/** Joined by a newline, as parts of a chat's messages are. */
function textOf(content: Content): string {
  if (typeof content === 'string') return content;
  return content.map(({ text, refusal }) => text ?? refusal ?? '').join('\n');
}

/** By their types: what a tool put out that no model reads here. */
const LEFT_OUT: Readonly<Record<string, string>> = {
  input_file: '[A file is left out here: files cannot be read.]',
  input_audio: '[A recording is left out here: audio cannot be heard.]',
  encrypted_content: '[A part is left out here: it is encrypted.]',
};

function partOf({ type, text, refusal, image_url: url, detail }: InputPart): ContentPart {
  const leftOut = LEFT_OUT[type];
  if (leftOut !== undefined) return { type: 'text', text: leftOut };
  if (type !== 'input_image') return { type: 'text', text: text ?? refusal ?? '' };
  // An image that another server has a file of is answered as any image that cannot be read.
  return { type: 'image_url', image_url: { url: url ?? '', ...(isDetail(detail) && { detail }) } };
}

/** `original` is as if it were absent. */
function isDetail(detail: string | null | undefined): detail is 'auto' | 'low' | 'high' {
  return detail === 'auto' || detail === 'low' || detail === 'high';
}

/** A tool's output: parts only if there is an image. */
function resultContent(output: Content): string | readonly ContentPart[] {
  if (typeof output === 'string') return output;
  const parts = output.map(partOf);
  if (parts.some(({ type }) => type === 'image_url')) return parts;
  return parts.map((part) => (part.type === 'text' ? part.text : '')).join('\n');
}

/** Fields of such items that say nothing to a model, or that stand in the heading of their words. */
const UNSPOKEN: ReadonlySet<string> = new Set(['type', 'id', 'status', 'encrypted_content', 'name', 'call_id']);

/** A call or a result of a tool that is no function, in words: no template has a form for it. */
function wordsOf(item: ForeignItem): { readonly role: 'user' | 'assistant'; readonly text: string } {
  const { type, encrypted_content: encrypted, name, call_id: call } = item;
  const rest = Object.fromEntries(Object.entries(item).filter(([field]) => !UNSPOKEN.has(field)));
  const role = /call$/.test(type) ? 'assistant' : 'user';
  const named = [type, name, call].filter((part) => typeof part === 'string').join(' ');
  const [only, ...others] = Object.values(rest).filter((value) => value !== null);
  const said = only === undefined ? '' : others.length === 0 ? valueText(only) : JSON.stringify(rest);
  const hidden = typeof encrypted === 'string' ? 'Its content is encrypted and cannot be read here.' : '';
  return { role, text: [`[${named}]`, said, hidden].filter((part) => part !== '').join('\n') };
}

function valueText(value: unknown): string {
  if (typeof value === 'string') return value;
  const parts = Array.isArray(value) ? (value as readonly unknown[]).map(textPart) : [];
  const texts = parts.filter((part) => part !== undefined);
  return parts.length > 0 && texts.length === parts.length ? texts.join('\n') : JSON.stringify(value);
}

/** The text of a part of an output; undefined if it is none. */
function textPart(part: unknown): string | undefined {
  if (typeof part !== 'object' || part === null) return undefined;
  const { type, text } = part as { readonly type?: unknown; readonly text?: unknown };
  if (type === 'input_image') return '[An image is left out here.]';
  return typeof text === 'string' ? text : LEFT_OUT[String(type)];
}
