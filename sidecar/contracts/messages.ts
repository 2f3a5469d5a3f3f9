/** Bodies of POST /v1/messages and POST /v1/messages/count_tokens, brought into the form of chat requests. */
import { callChoiceOf, paramsOf, type ChatBody } from './chat.js';
import { checkOf, isBilling, sessionIdOf, thoughtBudgetOf, tierOf, toolOf } from './compatible.js';
import { type Parsed, refuse } from './body-refusals.js';
import { MESSAGES_SCHEMA } from './messages-schema.js';
import type { ChatRequest, ContentPart, Message, MessagePlace, ReasoningEffort, Tool, ToolCall } from './requests.js';
import type { ValueOf } from './validator.js';

/** A block of a message, of a system text or of a tool's result; which fields it has depends on `type`. */
interface Block {
  readonly type: string;
  readonly text?: string;
  readonly thinking?: string;
  readonly title?: string | null;
  readonly context?: string | null;
  readonly source?: Source | string | null;
  readonly id?: string;
  readonly name?: string;
  readonly input?: unknown;
  readonly tool_use_id?: string;
  readonly tool_name?: string;
  readonly is_error?: boolean | null;
  readonly content?: Content | null;
}

interface Source {
  readonly type: string;
  readonly media_type?: string | null;
  readonly data?: string;
  readonly url?: string;
  readonly content?: Content;
}

type Content = string | readonly Block[];

interface MessagesTool {
  readonly type?: string | null;
  /** A set of tools that run at Anthropic has none. */
  readonly name?: string;
  readonly description?: string | null;
  readonly input_schema?: object;
  readonly strict?: boolean | null;
  readonly defer_loading?: boolean | null;
}

/** A body that passed its schema. */
interface MessagesBody extends Omit<
  ValueOf<typeof MESSAGES_SCHEMA>,
  'messages' | 'system' | 'thinking' | 'tool_choice' | 'tools'
> {
  readonly messages: readonly { readonly role: 'user' | 'assistant' | 'system'; readonly content: Content }[];
  readonly system?: Content | null;
  readonly tools?: readonly MessagesTool[] | null;
  readonly tool_choice?: {
    readonly type: 'auto' | 'any' | 'tool' | 'none';
    readonly name?: string;
    readonly disable_parallel_tool_use?: boolean | null;
  } | null;
  readonly thinking?: { readonly type: string; readonly budget_tokens?: number | null } | null;
}

const check = checkOf<MessagesBody>(MESSAGES_SCHEMA, 'messages');

/** Checks a body of either route. `keepBilling`: the block with Claude Code's billing line stays in the prompt. */
export function toMessagesRequest(value: unknown, keepBilling = false): Parsed<ChatRequest> {
  const checked = check(value);
  if (checked.kind === 'invalid') return checked;
  const body = checked.request;
  const offered = offeredTools(body);
  if ('kind' in offered) return offered;
  const { messages, places, firstImage } = conversationOf(body, keepBilling);
  const { schema, at } = formatOf(body);
  const chat = chatOf(body, messages, offered);
  const tools = chat.tool_choice === 'none' ? undefined : chat.tools;
  const topK = body.top_k ?? 0;
  return {
    kind: 'ok',
    request: {
      params: {
        ...paramsOf(chat, tools && callChoiceOf(chat)),
        jsonObject: schema !== undefined,
        ...(topK > 0 && { topK }),
        ...thoughtBudgetOf(body.thinking?.budget_tokens),
        ...(firstImage !== undefined && { firstImage }),
        ...sessionIdOf(body),
        ...tierOf(body),
      },
      conversation: { messages, ...(tools && { tools }) },
      ...(schema && { replySchema: schema, replySchemaAt: at }),
      places,
    },
  };
}

function formatOf({ output_config: config, output_format: former }: MessagesBody): {
  readonly schema?: object;
  readonly at: readonly string[];
} {
  if (config?.format) return { schema: config.format.schema, at: ['output_config', 'format', 'schema'] };
  return former ? { schema: former.schema, at: ['output_format', 'schema'] } : { at: [] };
}

function chatOf(body: MessagesBody, messages: readonly Message[], tools: readonly Tool[]): ChatBody {
  const { model, max_tokens: maxTokens, temperature, top_p: topP, stream, tool_choice: choice } = body;
  const user = body.metadata?.user_id ?? '';
  const stops = body.stop_sequences ?? [];
  const effort = effortOf(body);
  return {
    model,
    messages,
    ...(typeof maxTokens === 'number' && { max_tokens: maxTokens }),
    ...(typeof temperature === 'number' && { temperature }),
    ...(typeof topP === 'number' && { top_p: topP }),
    ...(stream === true && { stream }),
    ...(stops.length > 0 && { stop: stops }),
    ...(effort !== undefined && { reasoning_effort: effort }),
    // A longer one is no label that requests are told apart by.
    ...(user !== '' && user.length <= MAX_USER && { user }),
    ...(tools.length > 0 && { tools }),
    ...(choice && { tool_choice: CHOICES[choice.type] ?? { function: { name: choice.name ?? '' } } }),
    ...(choice?.disable_parallel_tool_use === true && { parallel_tool_calls: false }),
  };
}

/** As in chat, in characters. */
const MAX_USER = 256;

const CHOICES: Readonly<Record<string, 'auto' | 'required' | 'none'>> = { auto: 'auto', any: 'required', none: 'none' };

/**
 * The effort of thought. Without `thinking` and without an effort there is none, as in Anthropic's API. A budget without an effort is the
 * level whose thoughts are usually about as long.
 */
function effortOf({ thinking, output_config: config }: MessagesBody): ReasoningEffort | undefined {
  if (thinking?.type === 'disabled') return 'none';
  if (config?.effort) return config.effort;
  if (!thinking) return 'none';
  const budget = thinking.budget_tokens ?? undefined;
  if (budget === undefined) return thinking.type === 'enabled' ? 'medium' : undefined;
  return budget <= 1024 ? 'low' : budget <= 8192 ? 'medium' : 'high';
}

/** The caller's own tools that the model is shown, or why the tools cannot be what the body says. */
function offeredTools(body: MessagesBody): readonly Tool[] | Extract<Parsed<never>, { kind: 'invalid' }> {
  const { tools, tool_choice: choice, messages } = body;
  const forced = choice?.type === 'tool' ? choice.name : undefined;
  const referenced = new Set(messages.flatMap(({ content }) => references(content)));
  const known = new Set<string>();
  const offered: Tool[] = [];
  for (const [i, { type, name = '', defer_loading: deferred, ...described }] of (tools ?? []).entries()) {
    if (known.has(name))
      return refuse(`tools[${i}].name`, 'must not be the name of an earlier tool: give each tool its own name');
    if (name !== '') known.add(name);
    const own = type === undefined || type === null || type === 'custom';
    if (!own && forced === name)
      return refuse('tool_choice.name', 'must not be a tool of a type that is not served here: offer one of your own');
    if (!own || (deferred === true && forced !== name && !referenced.has(name))) continue;
    const { description = null, input_schema: parameters = {}, strict = null } = described;
    offered.push(toolOf({ type: 'function', function: { name, description, parameters, strict } }));
  }
  if (forced !== undefined && !known.has(forced))
    return refuse('tool_choice.name', 'must be the name of one of the tools');
  if (choice?.type === 'any' && offered.length === 0)
    return refuse('tool_choice', 'must not be any without a tool that can be called');
  return offered;
}

/** Names of the tools that the results in a message refer to. */
function references(content: Content): string[] {
  return blocksOf(content).flatMap((block) =>
    block.type === 'tool_result'
      ? blocksOf(block.content).flatMap(({ type, tool_name: name }) =>
          type === 'tool_reference' && name !== undefined ? [name] : [],
        )
      : [],
  );
}

/** A block with its path. */
interface Placed {
  readonly block: Block;
  readonly at: string;
}

/** The system text and the messages, and the place of each. Neighbours of one role are one turn. */
function conversationOf({ system, messages: given }: MessagesBody, keepBilling: boolean) {
  const messages: Message[] = [];
  const places: MessagePlace[] = [];
  let firstImage: string | undefined;
  const push = (message: Message, at: string, calls: readonly string[] = []): void => {
    messages.push(message);
    places.push({ at, calls });
  };
  const text = systemText(system, keepBilling);
  if (text !== undefined) push({ role: 'system', content: text }, 'system');
  for (let i = 0; i < given.length;) {
    const role = given[i]?.role ?? 'user';
    const at = `messages[${i}]`;
    const turn: Placed[] = [];
    for (; given[i]?.role === role; i += 1) turn.push(...placedBlocks(given[i]?.content, `messages[${i}].content`));
    if (role === 'system') push({ role, content: turn.map(({ block }) => textOf(block)).join('\n') }, at);
    else if (role === 'assistant') {
      const { message, calls } = assistantOf(turn);
      push(message, at, calls);
    } else {
      // Where they stand after other blocks they are the results of the calls before this turn nevertheless.
      const results = turn.filter(({ block }) => block.type === 'tool_result');
      const rest = turn.filter(({ block }) => block.type !== 'tool_result');
      for (const { block, at: place } of results)
        push({ role: 'tool', content: resultContent(block), tool_call_id: block.tool_use_id ?? '' }, place);
      firstImage ??= rest.find(({ block }) => block.type === 'image')?.at;
      if (rest.length > 0 || results.length === 0)
        push({ role, content: contentOf(rest.map(({ block }) => block)) }, at);
    }
  }
  return { messages, places, ...(firstImage !== undefined && { firstImage }) };
}

function systemText(system: Content | null | undefined, keepBilling: boolean): string | undefined {
  const [first, ...rest] = blocksOf(system);
  if (first === undefined) return undefined;
  const billed = !keepBilling && isBilling(first);
  const all = billed ? rest : [first, ...rest];
  return all.length === 0 ? undefined : all.map(textOf).join('\n');
}

function blocksOf(content: Content | null | undefined): readonly Block[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : (content ?? []);
}

/** The path of a text that is no list of blocks is that of the content. */
function placedBlocks(content: Content | undefined, at: string): Placed[] {
  const inList = typeof content !== 'string';
  return blocksOf(content).map((block, i) => ({ block, at: inList ? `${at}[${i}]` : at }));
}

function assistantOf(turn: readonly Placed[]): { readonly message: Message; readonly calls: readonly string[] } {
  const thoughts: string[] = [];
  const texts: string[] = [];
  const made: ToolCall[] = [];
  const calls: string[] = [];
  for (const { block, at } of turn) {
    if (block.type === 'thinking') thoughts.push(block.thinking ?? '');
    else if (block.type === 'tool_use') {
      const { id = '', name = '', input = {} } = block;
      // The text of an input that was cut is taken as it is: history.ts makes an object of what is none.
      const given = typeof input === 'string' ? input : JSON.stringify(input);
      made.push({ id, type: 'function', function: { name, arguments: given } });
      calls.push(at);
    } else if (!UNREAD.has(block.type)) texts.push(textOf(block));
  }
  const content = texts.length === 0 && made.length > 0 ? null : texts.join('\n');
  const thought = thoughts.join('\n');
  return {
    message: {
      role: 'assistant',
      content,
      ...(thought !== '' && { reasoning_content: thought }),
      ...(made.length > 0 && { tool_calls: made }),
    },
    calls,
  };
}

/** Blocks of a reply that say nothing to a model: which other model went on, and what an MCP server listed. */
const UNREAD: ReadonlySet<string> = new Set(['redacted_thinking', 'fallback', 'mcp_tool_listing']);

/** Parts only if there is an image. */
function contentOf(blocks: readonly Block[]): string | readonly ContentPart[] {
  if (!blocks.some(({ type }) => type === 'image')) return blocks.map(textOf).join('\n');
  return blocks.map((block): ContentPart => {
    const url = imageUrl(block);
    return url === undefined ? { type: 'text', text: textOf(block) } : { type: 'image_url', image_url: { url } };
  });
}

function imageUrl({ type, source }: Block): string | undefined {
  if (type !== 'image' || typeof source !== 'object' || source === null) return undefined;
  return source.type === 'base64' ? `data:${source.media_type ?? ''};base64,${source.data ?? ''}` : (source.url ?? '');
}

/** A failure is said in words, since templates have no field for it. */
function resultContent({ content, is_error: failed }: Block): string | readonly ContentPart[] {
  return contentOf([...(failed === true ? [FAILED] : []), ...blocksOf(content)]);
}

const FAILED: Block = { type: 'text', text: 'The call failed.' };

/** A block as text of the conversation: its own text, or words that say what it is. */
function textOf(block: Block): string {
  const { type, text, title, context, source } = block;
  switch (type) {
    case 'text':
      return text ?? '';
    case 'image':
      return '[An image was here. It cannot be seen.]';
    case 'tool_reference':
      return `The tool ${block.tool_name ?? ''} can be called from now on.`;
    case 'search_result':
      return [
        ...heading(title, typeof source === 'string' ? source : null),
        ...blocksOf(block.content).map(textOf),
      ].join('\n');
    case 'document': {
      const {
        type: kind = '',
        media_type: media,
        data,
        content,
      }: Partial<Source> = typeof source === 'object' && source ? source : {};
      const readable =
        kind === 'text' ? (data ?? '') : kind === 'content' ? blocksOf(content).map(textOf).join('\n') : undefined;
      const words = readable ?? `[A document${media ? ` of the type ${media}` : ''} was here. It cannot be read.]`;
      return [...heading(title, context), words].join('\n');
    }
    default:
      return `[${type}: ${JSON.stringify(block, withoutOpaque)}]`;
  }
}

function heading(...lines: readonly (string | null | undefined)[]): string[] {
  return lines.filter((line): line is string => typeof line === 'string' && line !== '');
}

/** Without the members that only Anthropic's servers can read, which may have megabytes. */
function withoutOpaque(name: string, value: unknown): unknown {
  return name.startsWith('encrypted_') || name === 'signature' || name === 'cache_control' ? undefined : value;
}
