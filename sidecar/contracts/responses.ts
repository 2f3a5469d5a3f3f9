/** Bodies of POST /responses, brought into the form of chat requests. */
import { callChoiceOf, checkTools, paramsOf, type ChatBody } from './chat.js';
import { toolOf } from './compatible.js';
import { pathOf, placeOf, type Parsed, refuse, refuseAt } from './body-refusals.js';
import type { ChatRequest, ContentPart, Message, MessagePlace, ReasoningEffort, ToolCall } from './requests.js';
import { RESPONSES_SCHEMA } from './responses-schema.js';
import { compile } from './validator.js';
import { RESPONSES_CODE } from './written-code.js';
import { WELL_KNOWN_NAMES } from './well-known-names.js';
import { WIDE_OPEN_MAPS } from './compatible-schema.js';

interface Part {
  readonly type: string;
  readonly text?: string;
  readonly refusal?: string;
  readonly image_url?: string;
  readonly detail?: 'auto' | 'low' | 'high' | null;
}

type Content = string | readonly Part[];

type Item =
  | {
      readonly type?: 'message';
      readonly role: 'user' | 'system' | 'developer' | 'assistant';
      readonly content: Content;
    }
  | { readonly type: 'function_call'; readonly call_id: string; readonly name: string; readonly arguments: string }
  | { readonly type: 'function_call_output'; readonly call_id: string; readonly output: Content }
  | {
      readonly type: 'reasoning';
      readonly summary?: readonly Part[] | null;
      readonly content?: readonly Part[] | null;
    };

/** A body that passed its schema. */
interface ResponsesBody {
  readonly model: string;
  readonly input: string | readonly Item[];
  readonly instructions?: string | null;
  readonly max_output_tokens?: number | null;
  readonly temperature?: number | null;
  readonly top_p?: number | null;
  readonly stream?: boolean | null;
  readonly tools?:
    | readonly {
        readonly type: 'function';
        readonly name: string;
        readonly description?: string | null;
        readonly parameters?: object | null;
        readonly strict?: boolean | null;
      }[]
    | null;
  readonly tool_choice?: 'none' | 'auto' | 'required' | { readonly name: string } | null;
  readonly parallel_tool_calls?: boolean | null;
  readonly reasoning?: { readonly effort?: ReasoningEffort | null } | null;
  readonly text?: {
    readonly format?: { readonly type: 'text' | 'json_object' | 'json_schema'; readonly schema?: object } | null;
  } | null;
  readonly user?: string | null;
}

// A sidecar with the strict contract seldom needs it.
const check = compile<ResponsesBody>(RESPONSES_SCHEMA, { written: RESPONSES_CODE, names: WELL_KNOWN_NAMES });

/** Checks a body of POST /responses against its contract. */
export function toResponsesRequest(value: unknown): Parsed<ChatRequest> {
  const outcome = check(value);
  if (!outcome.ok) return refuseAt(placeOf(outcome.segments, WIDE_OPEN_MAPS), outcome.message);
  const body = outcome.value;
  const { messages, places } = messagesOf(body);
  const chat = chatOf(body, messages);
  const impossible = checkImages(body.input) ?? checkTools(chat, RESPONSES_NAMES);
  if (impossible !== undefined) return impossible;
  const tools = chat.tool_choice === 'none' ? undefined : chat.tools;
  const params = paramsOf(chat, tools && callChoiceOf(chat));
  const schema = body.text?.format?.schema;
  return {
    kind: 'ok',
    request: {
      params: params.firstImage === undefined ? params : { ...params, firstImage: 'input' },
      conversation: { messages: chat.messages, ...(tools && { tools }) },
      ...(schema && { replySchema: schema, replySchemaAt: ['text', 'format', 'schema'] }),
      places,
    },
  };
}

const RESPONSES_NAMES = { tool: (at: number) => `tools[${at}].name`, choice: 'tool_choice.name' };

/** Why an image is not where chat templates take one; undefined: all are. */
function checkImages(input: ResponsesBody['input']): Parsed<never> | undefined {
  if (typeof input === 'string') return undefined;
  for (const [i, item] of input.entries()) {
    if (!('role' in item) || item.role === 'user' || typeof item.content === 'string') continue;
    const image = item.content.findIndex(({ type }) => type === 'input_image');
    if (image < 0) continue;
    const path = pathOf(['input', String(i), 'content', String(image)]);
    return refuse(path, 'must not be an image: only messages of the role user may have images');
  }
  return undefined;
}

function chatOf(body: ResponsesBody, messages: readonly Message[]): ChatBody {
  const { model, tools, tool_choice: choice, reasoning, text } = body;
  const effort = reasoning?.effort;
  const offered = (tools ?? []).map(({ type, ...described }) => toolOf({ type, function: described }));
  const format = text?.format?.type ?? 'text';
  return {
    model,
    messages,
    ...given('max_completion_tokens', body.max_output_tokens),
    ...given('temperature', body.temperature),
    ...given('top_p', body.top_p),
    ...given('stream', body.stream),
    ...given('parallel_tool_calls', body.parallel_tool_calls),
    ...given('reasoning_effort', effort),
    ...given('user', body.user === '' ? null : body.user),
    ...(offered.length > 0 && { tools: offered }),
    ...given('tool_choice', typeof choice === 'object' && choice !== null ? { function: choice } : choice),
    ...(format !== 'text' && { response_format: { type: 'json_object' } }),
  };
}

/** A member that is there unless it is null or absent. */
function given<Name extends string, T>(name: Name, value: T | null | undefined): Partial<Record<Name, T>> {
  return value === null || value === undefined ? {} : ({ [name]: value } as Record<Name, T>);
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
  add(item: Item, at: string): void {
    switch (item.type) {
      case 'reasoning':
        // A thought begins what the assistant does next.
        this.#last = undefined;
        this.#assistant({ reasoning_content: textOf((item.content?.length ? item.content : item.summary) ?? []) }, at);
        return;
      case 'function_call':
        this.#call(
          {
            id: item.call_id,
            type: 'function',
            function: { name: item.name, arguments: item.arguments },
          },
          at,
        );
        return;
      case 'function_call_output':
        this.#push({ role: 'tool', content: textOf(item.output), tool_call_id: item.call_id }, at);
        return;
      default:
        this.#message(item.role, item.content, at);
    }
  }

  #message(role: 'user' | 'system' | 'developer' | 'assistant', content: Content, at: string): void {
    if (role === 'assistant') {
      if (this.#last?.content !== null || this.#last.tool_calls) this.#last = undefined;
      this.#assistant({ content: textOf(content) }, at);
    } else if (role === 'user') this.#push({ role, content: userContent(content) }, at);
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

function userContent(content: Content): string | readonly ContentPart[] {
  if (typeof content === 'string') return content;
  return content.map(({ text, refusal, image_url: url, detail }): ContentPart => {
    if (url === undefined) return { type: 'text', text: text ?? refusal ?? '' };
    return { type: 'image_url', image_url: { url, ...(typeof detail === 'string' && { detail }) } };
  });
}
