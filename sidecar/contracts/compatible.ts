/** Chat bodies under `contract: compatible`, brought into the form of the strict contract's requests. */
import { SERVICE_TIERS, type ServedTier } from '../domain/service-class.js';
import { paramsOf, callChoiceOf, checkTools, type ChatBody } from './chat.js';
import { COMPATIBLE_SCHEMA, WIDE_OPEN_MAPS, type WideFormat, type WideTool } from './compatible-schema.js';
import { pathOf, placeOf, type Parsed, refuseAt } from './body-refusals.js';
import type { ChatParams, ChatRequest, ContentPart, Message, ReasoningEffort, Tool, ToolCall } from './requests.js';
import { compile, type ValueOf } from './validator.js';
import { WELL_KNOWN_NAMES } from './well-known-names.js';

/** Text as one string or in parts. */
type WideText = string | null | readonly { readonly text?: string; readonly refusal?: string }[];

/** A part of an assistant's content, by the names of several APIs. */
interface ReplyPart {
  readonly type: string;
  readonly text?: string | null;
  readonly refusal?: string;
  readonly thinking?: WideText;
  readonly reasoning?: string | null;
}

type WideMessage =
  | { readonly role: 'system' | 'developer'; readonly content: WideText; readonly name?: string | null }
  | { readonly role: 'user'; readonly content: string | readonly ContentPart[]; readonly name?: string | null }
  | {
      readonly role: 'assistant';
      readonly content?: string | null | readonly ReplyPart[];
      readonly name?: string | null;
      readonly reasoning_content?: string | null;
      readonly reasoning?: string | object | null;
      readonly refusal?: string | null;
      readonly tool_calls?: readonly ToolCall[] | null;
    }
  | { readonly role: 'tool'; readonly content?: string | null | readonly ContentPart[]; readonly tool_call_id: string };

type Body = ValueOf<typeof COMPATIBLE_SCHEMA>;

/** A body that passed its schema; null members are left out. */
type CompatibleBody = { readonly [Name in keyof Omit<Body, 'messages' | 'tool_choice'>]: Exclude<Body[Name], null> } & {
  readonly messages: readonly WideMessage[];
} & Pick<ChatBody, 'tool_choice'>;

/** The strict contract's names that routes in other forms translate (WorkRoute.fieldNames): as a `param` one would be translated too. */
const TRANSLATED: ReadonlySet<string> = new Set(['messages', 'max_completion_tokens', 'response_format']);

/**
 * The check of a body against a schema of this contract. `written`: the name of its code. A field outside the contract that has a well-known
 * name is the `param` of the refusal, unless it is within a map whose keys the caller chose.
 */
export function checkOf<T>(schema: object, written: string): (value: unknown) => Parsed<T> {
  const check = compile<T>(schema, { written, names: WELL_KNOWN_NAMES, countFields: true });
  return (value) => {
    const outcome = check(value);
    if (outcome.ok) return { kind: 'ok', request: outcome.value };
    const { segments, message, field } = outcome;
    const place = placeOf(segments, WIDE_OPEN_MAPS);
    const whole = place.param === (pathOf(segments) || null);
    if (field === undefined || !whole || TRANSLATED.has(field)) return refuseAt(place, message);
    return refuseAt({ subject: place.subject, param: placeOf([...segments, field], WIDE_OPEN_MAPS).param }, message);
  };
}

const check = checkOf<CompatibleBody>(COMPATIBLE_SCHEMA, 'compatible');

/**
 * Claude Code's first block of system text. It names the client's version and how it was started, and older versions put a checksum of the
 * request into it, so that no two requests had a common beginning and no prefix could be reused.
 */
export function isBilling({ text }: { readonly text?: string | undefined }): boolean {
  return text?.startsWith('x-anthropic-billing-header:') === true;
}

/** Gateways send Claude Code's system text on as parts of the first message. */
function withoutBilling(messages: readonly WideMessage[]): readonly WideMessage[] {
  const [first, ...others] = messages;
  if (first?.role !== 'system' && first?.role !== 'developer') return messages;
  const [part, ...parts] = typeof first.content === 'string' ? [] : (first.content ?? []);
  if (part === undefined || parts.length === 0 || !isBilling(part)) return messages;
  return [{ ...first, content: parts }, ...others];
}

/**
 * Checks a chat body against the compatible contract. A body that the strict contract takes makes the same request. `keepBilling`: the part
 * with Claude Code's billing line stays in the prompt.
 */
export function toCompatibleRequest(value: unknown, keepBilling = false): Parsed<ChatRequest> {
  const checked = check(value);
  if (checked.kind === 'invalid') return checked;
  const body = withoutNulls<CompatibleBody>(checked.request);
  const { response_format: format, stream_options: streaming, tools: wideTools, messages, user, ...rest } = body;
  const thought = thoughtOf(body);
  const includeUsage = streaming?.include_usage ?? body.usage?.include ?? false;
  const offered = wideTools?.map(toolOf) ?? [];
  const chat: ChatBody = {
    ...rest,
    messages: (keepBilling ? messages : withoutBilling(messages)).map(messageOf),
    ...(user !== undefined && user !== '' && { user }),
    ...(offered.length > 0 && { tools: offered }),
    ...(thought.effort !== undefined && { reasoning_effort: thought.effort }),
    stream_options: { include_usage: includeUsage },
    ...(format && { response_format: { type: format.type === 'text' ? 'text' : 'json_object' } }),
  };
  const impossible = checkTools(chat);
  if (impossible !== undefined) return impossible;
  const tools = chat.tool_choice === 'none' ? undefined : chat.tools;
  const schema = format && replySchemaOf(format);
  return {
    kind: 'ok',
    request: {
      params: {
        ...paramsOf(chat, tools && callChoiceOf(chat)),
        ...samplingOf(body),
        ...sessionIdOf(body),
        ...tierOf(body),
        ...thoughtBudgetOf(thought.budget),
        ...(includeUsage && streaming?.continuous_usage_stats === true && { continuousUsage: true }),
      },
      conversation: { messages: chat.messages, ...(tools && { tools }) },
      ...(schema && { replySchema: schema, replySchemaAt: SCHEMA_AT[format.type] }),
      ...(body.chat_template_kwargs && { switches: body.chat_template_kwargs }),
    },
  };
}

/** The tier that a body asks for: all but `flex` and `priority` is the default one. */
export function tierOf({ service_tier: asked }: { readonly service_tier?: string | null }): {
  readonly tier?: ServedTier;
} {
  if (asked === undefined || asked === null) return {};
  return { tier: SERVICE_TIERS.find((tier) => tier === asked) ?? 'default' };
}

/** The id by which a client names its session: OpenAI's `prompt_cache_key`, or the user's id that Claude Code makes for each session. */
export function sessionIdOf(body: {
  readonly prompt_cache_key?: string | null;
  readonly metadata?: object | null;
}): Pick<ChatRequest['params'], 'sessionId'> {
  const { prompt_cache_key: key } = body;
  if (typeof key === 'string' && key !== '') return { sessionId: key };
  const { user_id: id } = (body.metadata ?? {}) as { readonly user_id?: unknown };
  return typeof id === 'string' && id !== '' ? { sessionId: id } : {};
}

const SCHEMA_AT = {
  text: [],
  json_object: ['response_format', 'schema'],
  json_schema: ['response_format', 'json_schema', 'schema'],
} as const;

function replySchemaOf(format: WideFormat): object | null | undefined {
  if (format.type === 'text') return undefined;
  return format.type === 'json_object' ? format.schema : format.json_schema.schema;
}

/** Without the members that are null: each is as if it were absent. */
export function withoutNulls<T extends object>(value: { readonly [Name in keyof T]: T[Name] | null | undefined }): T {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== null && member !== undefined)) as T;
}

/**
 * How much the model may think. `reasoning_effort` counts before the names that other APIs have for it, and no budget at all is the effort
 * `none`. A switch that turns thought on is the effort that most templates have without one.
 */
function thoughtOf(body: CompatibleBody): { readonly effort?: ReasoningEffort; readonly budget?: number } {
  const { reasoning, thinking, think } = body;
  const budget =
    body.thinking_token_budget ?? body.thinking_budget ?? thinking?.budget_tokens ?? reasoning?.max_tokens ?? undefined;
  const level = body.reasoning_effort ?? reasoning?.effort ?? (typeof think === 'string' ? think : undefined);
  const type = thinking?.type ?? undefined;
  const switches = [
    type === 'disabled' ? false : type === 'enabled' ? true : undefined,
    body.enable_thinking,
    typeof think === 'boolean' ? think : undefined,
    reasoning?.enabled ?? undefined,
    budget === 0 ? false : undefined,
  ];
  const switched = switches.includes(false) ? 'none' : switches.includes(true) ? 'medium' : undefined;
  const effort = level ?? switched;
  return { ...(effort !== undefined && { effort }), ...(budget !== undefined && { budget }) };
}

/** 0, which turns thought off, and -1 are no budget. */
export function thoughtBudgetOf(tokens: number | null | undefined): Pick<ChatParams, 'thoughtBudget'> {
  return typeof tokens === 'number' && tokens > 0 ? { thoughtBudget: tokens } : {};
}

/** 0 and -1 are no top-k. */
function samplingOf({ top_k: topK = 0, min_p: minP = 0 }: CompatibleBody): { topK?: number; minP?: number } {
  return { ...(topK > 0 && { topK }), ...(minP > 0 && { minP }) };
}

function messageOf(message: WideMessage): Message {
  const named = 'name' in message && typeof message.name === 'string' ? { name: message.name } : {};
  switch (message.role) {
    case 'system':
    case 'developer':
      return { role: 'system', content: textOf(message.content) ?? '', ...named };
    case 'user':
      return { role: 'user', content: userContent(message.content), ...named };
    case 'tool':
      return { role: 'tool', content: resultContent(message.content), tool_call_id: message.tool_call_id };
    case 'assistant': {
      const { refusal, reasoning, tool_calls: calls } = message;
      const { text, thought: within } = spoken(message.content ?? null);
      const thought = message.reasoning_content ?? (typeof reasoning === 'string' ? reasoning : within);
      return {
        role: 'assistant',
        content: text ?? refusal ?? (calls && calls.length > 0 ? null : ''),
        ...named,
        ...(typeof thought === 'string' && { reasoning_content: thought }),
        ...(calls && calls.length > 0 && { tool_calls: calls.map(callOf) }),
      };
    }
  }
}

/** What an assistant's content says, and what it thought. What is encrypted there says nothing. */
function spoken(content: string | null | readonly ReplyPart[]): { readonly text?: string; readonly thought?: string } {
  if (typeof content === 'string') return { text: content };
  const texts: string[] = [];
  const thoughts: string[] = [];
  for (const { type, text, refusal, thinking, reasoning } of content ?? []) {
    if (type === 'thinking') thoughts.push(textOf(thinking ?? null) ?? '');
    else if (type === 'reasoning') thoughts.push(text ?? reasoning ?? '');
    else if (type !== 'redacted_thinking') texts.push(text ?? refusal ?? '');
  }
  const silent = content === null || (texts.length === 0 && content.length > 0);
  return { ...(!silent && { text: texts.join('\n') }), ...(thoughts.length > 0 && { thought: thoughts.join('\n') }) };
}

/** The parts by their own fields alone: others are ignored. */
function userContent(content: string | readonly ContentPart[]): string | readonly ContentPart[] {
  if (typeof content === 'string') return content;
  return content.map((part) =>
    part.type === 'text' ? { type: part.type, text: part.text } : { type: part.type, image_url: part.image_url },
  );
}

/** Parts only if there is an image. */
function resultContent(content: string | null | undefined | readonly ContentPart[]): string | readonly ContentPart[] {
  if (typeof content !== 'object' || content === null) return content ?? '';
  return content.some(({ type }) => type === 'image_url') ? userContent(content) : (textOf(content as WideText) ?? '');
}

/** Joined by a newline, as the parts of a user's message are. */
function textOf(content: WideText): string | undefined {
  if (content === null) return undefined;
  if (typeof content === 'string') return content;
  return content.map(({ text, refusal }) => text ?? refusal ?? '').join('\n');
}

function callOf({ id, function: called }: ToolCall): ToolCall {
  return { id, type: 'function', function: { name: called.name, arguments: called.arguments } };
}

/** Templates and the grammar read a function's parameters as those of an object. Keys keep their order, which shows in prompts. */
export function toolOf({ type, function: given }: WideTool): Tool {
  const { name, description, parameters, strict } = given;
  const described = { name, description, parameters: parametersOf(parameters ?? {}), strict };
  return { type, function: withoutNulls<Tool['function']>(described) };
}

/** What may stand beside a reference without limiting what it refers to. */
const ANNOTATIONS: ReadonlySet<string> = new Set([
  '$schema',
  '$id',
  '$comment',
  '$defs',
  'definitions',
  'title',
  'description',
]);

/** Where the root only refers, what it refers to is put in its place: templates list the properties of the root. */
function parametersOf(given: object): object {
  const { $ref: reference, ...rest } = given as { readonly $ref?: string } & Record<string, unknown>;
  const [, place = '', name = ''] = /^#\/(\$defs|definitions)\/([^/]+)$/.exec(reference ?? '') ?? [];
  const referred = (rest[place] as Record<string, unknown> | undefined)?.[name];
  const only = Object.keys(rest).every((keyword) => ANNOTATIONS.has(keyword));
  const replaces =
    only && typeof referred === 'object' && referred !== null && !('$defs' in referred || 'definitions' in referred);
  const root = replaces ? { ...rest, ...referred } : given;
  if ('type' in root && 'properties' in root) return root;
  const combined = ['$ref', 'allOf', 'anyOf', 'oneOf'].some((keyword) => keyword in root);
  return { type: 'object', ...(!combined && { properties: {} }), ...root };
}
