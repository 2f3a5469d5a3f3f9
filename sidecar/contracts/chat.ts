import type { CallChoice, ChatParams, ChatRequest, Message, ReasoningEffort, Tool } from './requests.js';
import { CHAT_OPEN_MAPS, CHAT_SCHEMA } from './chat-schema.js';
import { placeOf, type Parsed, refuse, refuseAt } from './body-refusals.js';
import { compile, type ValueOf } from './validator.js';
import { WELL_KNOWN_NAMES } from './well-known-names.js';

/** A body that passed its schema. Bodies of other contracts are brought into this form, and may have more efforts. */
export interface ChatBody extends Omit<
  ValueOf<typeof CHAT_SCHEMA>,
  'messages' | 'reasoning_effort' | 'tool_choice' | 'tools'
> {
  readonly messages: readonly Message[];
  readonly reasoning_effort?: ReasoningEffort;
  readonly tool_choice?: 'none' | 'auto' | 'required' | { readonly function: { readonly name: string } };
  readonly tools?: readonly Tool[];
}

const check = compile<ChatBody>(CHAT_SCHEMA, { written: 'chat', names: WELL_KNOWN_NAMES });

/** Checks a chat body against its contract and applies the defaults of docs/contract.md#chat-completion-request. */
export function toChatRequest(value: unknown): Parsed<ChatRequest> {
  const outcome = check(value);
  if (!outcome.ok) return refuseAt(placeOf(outcome.segments, CHAT_OPEN_MAPS), outcome.message);
  const body = outcome.value;
  const impossible = checkTools(body);
  if (impossible !== undefined) return impossible;

  const tools = body.tool_choice === 'none' ? undefined : body.tools;
  return {
    kind: 'ok',
    request: {
      params: paramsOf(body, tools && callChoiceOf(body)),
      conversation: { messages: body.messages, ...(tools && { tools }) },
    },
  };
}

/** Where a body of POST /chat/completions names functions. */
const CHAT_NAMES = { tool: (at: number) => `tools[${at}].function.name`, choice: 'tool_choice.function.name' };

/** Why the tools, or `tool_choice`, cannot be what the body says; undefined if they can. `names`: where it names functions. */
export function checkTools(body: ChatBody, names = CHAT_NAMES): Parsed<never> | undefined {
  const known = new Set<string>();
  for (const [i, { function: described }] of (body.tools ?? []).entries()) {
    if (known.has(described.name))
      return refuse(names.tool(i), 'must not be the name of an earlier tool: give each tool its own name');
    known.add(described.name);
  }
  return checkToolChoice(body, names.choice);
}

function checkToolChoice({ tool_choice: choice, tools }: ChatBody, nameAt: string): Parsed<never> | undefined {
  if (choice === undefined || choice === 'none' || choice === 'auto') return undefined;
  if (choice === 'required') return tools ? undefined : refuse('tool_choice', 'must not be required without tools');
  const { name } = choice.function;
  if (tools?.some((tool) => tool.function.name === name)) return undefined;
  return refuse(nameAt, 'must be the name of one of the tools');
}

/** Which calls a body with tools asks for. */
export function callChoiceOf({ tool_choice: choice, parallel_tool_calls: parallel = true }: ChatBody): CallChoice {
  // A function that is asked for by name is called once.
  if (typeof choice === 'object') return { required: true, name: choice.function.name, parallel: false };
  return { required: choice === 'required', parallel };
}

/** The part of a request that leaves the prompt host. `calls`: undefined where no tools are offered. */
export function paramsOf(body: ChatBody, calls: CallChoice | undefined): ChatParams {
  const maxTokens = body.max_completion_tokens ?? body.max_tokens;
  const firstImage = firstImageOf(body.messages);
  return {
    route: 'chat',
    model: body.model,
    stream: body.stream ?? false,
    includeUsage: body.stream_options?.include_usage ?? false,
    n: body.n ?? 1,
    ...(maxTokens !== undefined && {
      maxTokens,
      maxTokensField: body.max_completion_tokens === undefined ? 'max_tokens' : 'max_completion_tokens',
    }),
    temperature: body.temperature ?? 1,
    topP: body.top_p ?? 1,
    frequencyPenalty: body.frequency_penalty ?? 0,
    presencePenalty: body.presence_penalty ?? 0,
    ...(body.seed !== undefined && { seed: body.seed }),
    stops: typeof body.stop === 'string' ? [body.stop] : (body.stop ?? []),
    jsonObject: body.response_format?.type === 'json_object',
    ...(body.reasoning_effort !== undefined && { reasoningEffort: body.reasoning_effort }),
    ...(calls && { calls }),
    ...(firstImage !== undefined && { firstImage }),
    ...(body.user !== undefined && { user: body.user }),
  };
}

/** Path of the first image part, which the refusal of a model without vision names. */
function firstImageOf(messages: readonly Message[]): string | undefined {
  for (const [i, message] of messages.entries()) {
    if (message.role !== 'user' || typeof message.content === 'string') continue;
    const part = message.content.findIndex(({ type }) => type === 'image_url');
    if (part >= 0) return `messages[${i}].content[${part}].image_url`;
  }
  return undefined;
}
