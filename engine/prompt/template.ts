import type { CallSyntax } from '../protocol/reply-format.js';
import { type CallForm, callFormOf, inCallForm, withEmbeddedResults } from './call-forms.js';
import { shapeConversation, withMessages, type PromptConversation, type Shape, type Shaped } from './conversation.js';
import { UNMARKED, type Marking } from './data-text.js';
import { formatDate } from './dates.js';
import { probeEfforts, type Effort, type EffortValues, type Efforts } from './effort.js';
import { JinjaTemplate } from './jinja.js';
import {
  inRoleForm,
  inSystemForm,
  NEXT_QUESTION,
  PLAIN_ROLES,
  type RoleForm,
  roleFormOf,
  type TurnForm,
  turnFormOf,
  withoutNextQuestion,
} from './role-forms.js';
import { probeShape, shapeWithMarks } from './template-probe.js';
import { thoughtsOf } from './thought-format.js';
import { toolUseOf, type ToolUse } from './tool-use.js';

/** Texts that templates ask for by name. */
export interface TemplateTokens {
  readonly bos: string;
  readonly eos: string;
}

export interface RenderOptions {
  readonly addGenerationPrompt: boolean;
  /** Reaches the template by the names that it has for it ({@link Efforts}). Absent: a model that can think does, as in llama.cpp. */
  readonly reasoningEffort?: Effort;
  /** The schema of a reply that is JSON, for the templates that write it down. */
  readonly writtenSchema?: object;
  /** The caller's own values for names that the template reads. Names that carry the conversation are not among them. */
  readonly switches?: Readonly<Record<string, string | number | boolean | null>>;
}

/** `why` is for the caller's message; a template's own error is not passed on, since it may quote the conversation. */
export interface RenderFailure {
  readonly kind: 'failed';
  readonly why: 'tools' | 'arguments' | 'unpaired-result' | 'conversation';
  /** Constant words of the template's own. */
  readonly templateText?: string;
  /** The index of the message that causes it, and of its call. */
  readonly message?: number;
  readonly call?: number;
}

export type Rendered = { readonly kind: 'text'; readonly text: string } | RenderFailure;

/** What a model can be asked for, found out by rendering its template. */
export interface TemplateCapabilities {
  /** A request may offer tools: the template lists them, or a system message does. */
  readonly tools: boolean;
  readonly system: boolean;
}

/**
 * Thoughts of earlier turns stay in the prompt, under the names that templates have for them. As in llama-server, a
 * conversation's prompt then begins with the previous one, whose state is reused.
 */
const KEEP_THOUGHTS = {
  preserve_thinking: true,
  clear_thinking: false,
  truncate_history_thinking: false,
  drop_thinking: false,
};

/** A parsed template with what does not change between renderings. */
interface TemplateSource {
  readonly text: string;
  readonly template: JinjaTemplate;
  readonly tokens: TemplateTokens;
  /** The model thinks when no effort is named. */
  readonly thinks: boolean;
  /** It writes the schema of a JSON reply itself, where others expect OpenAI's form of it, which llama.cpp does not give them. */
  readonly writesFormat: boolean;
  /** What it is given for each level of effort. */
  readonly efforts: Efforts;
  /** It reads the results of calls from the message that calls, and from no other. */
  readonly embedsResults: boolean;
  /** It begins no turn of the model after a message that has words beside the results of its calls (Gemma 4). */
  readonly omitsTurn: boolean;
}

export interface HistoryForms {
  readonly shape: Shape;
  readonly roles: RoleForm;
  readonly calls: CallForm;
  readonly turns: TurnForm;
}

/** A model's chat template, and the forms of conversations that it takes. */
export class ChatTemplate {
  readonly capabilities: TemplateCapabilities;
  readonly tools: ToolUse;
  readonly forms: HistoryForms;
  readonly #template: TemplateSource;

  constructor(template: TemplateSource, tools: ToolUse, forms: HistoryForms) {
    this.capabilities = { tools: tools.calls !== undefined, system: forms.shape.system };
    this.tools = tools;
    this.forms = forms;
    this.#template = template;
  }

  /** What the template is given for each level of effort. */
  get efforts(): Efforts {
    return this.#template.efforts;
  }

  /** How its model writes calls; undefined if it is given no tools. */
  get calls(): CallSyntax | undefined {
    return this.tools.calls;
  }

  /** Renders a conversation. Never throws: what the template cannot express is a returned failure. */
  render(conversation: PromptConversation, options: RenderOptions): Rendered {
    const shaped = this.shape(conversation, options);
    return shaped.kind === 'failed' ? shaped : this.renderShaped(shaped.shaped, options);
  }

  /**
   * The first half of `render`: the conversation as the template will see it, so that its strings can be looked at. `plain`: in the form
   * that every template takes. Where no text begins a turn of the model, an empty message of the user stands behind a reply at the end.
   */
  shape(
    conversation: PromptConversation,
    { addGenerationPrompt, plain = false }: { readonly addGenerationPrompt: boolean; readonly plain?: boolean },
  ): { readonly kind: 'shaped'; readonly shaped: Shaped } | RenderFailure {
    const offered = conversation.tools !== undefined && conversation.tools.length > 0;
    if (offered && !this.capabilities.tools) return { kind: 'failed', why: 'tools' };
    const { roles, calls, turns, shape } = this.forms;
    const form = plain ? PLAIN_ROLES : roles;
    const asks = addGenerationPrompt && turns === 'none' && endsWithReply(conversation);
    const more = asks ? [{ role: 'user', content: '' }] : [];
    const asked = withMessages(conversation, [...conversation.messages, ...more]);
    try {
      const formed = inRoleForm(inCallForm(inSystemForm(asked, form), calls), form);
      return { kind: 'shaped', shaped: shaped(formed, shape, this.#template) };
    } catch {
      return { kind: 'failed', why: 'arguments' };
    }
  }

  /**
   * The second half of `render`. The text has the marks of `marking`. With `addGenerationPrompt` it ends with what begins a new turn of
   * the model, also behind a reply.
   */
  renderShaped(shaped: Shaped, options: RenderOptions, marking: Marking = UNMARKED): Rendered {
    const turns = options.addGenerationPrompt && endsWithReply(shaped) ? this.forms.turns : 'begun';
    const asks = typeof turns === 'object' ? [NEXT_QUESTION] : [];
    const [question] = shapeConversation({ messages: asks }, this.forms.shape).messages;
    const given = question ? Object.assign({}, shaped, { messages: [...shaped.messages, question] }) : shaped;
    const text = renderWith(this.#template, given, options, marking);
    if (text !== undefined && typeof turns === 'object') {
      const begun = withoutNextQuestion(text, turns, marking.mark);
      return begun === undefined ? { kind: 'failed', why: 'conversation' } : { kind: 'text', text: begun };
    }
    if (text !== undefined) return { kind: 'text', text: withOmittedTurn(this.#template, text, options, marking) };
    const says = ownWords(this.#template, given, options);
    return { kind: 'failed', why: 'conversation', ...(says !== undefined && { templateText: says }) };
  }
}

/** Whether the last message is the assistant's and calls nothing. */
function endsWithReply({ messages }: { readonly messages: readonly object[] }): boolean {
  const last = messages.at(-1);
  return last !== undefined && 'role' in last && last.role === 'assistant' && !('tool_calls' in last);
}

/** A conversation as the template is given it. As {@link shapeConversation}. */
function shaped(conversation: PromptConversation, shape: Shape, { embedsResults }: TemplateSource): Shaped {
  return shapeConversation(embedsResults ? withEmbeddedResults(conversation) : conversation, shape);
}

/** Parses and probes a template. `toolFormat`: `models[].toolFormat`. `problem` is one line for the operator. */
export function makeTemplate(
  source: string,
  tokens: TemplateTokens,
  toolFormat = 'auto',
): { readonly kind: 'ok'; readonly template: ChatTemplate } | { readonly kind: 'bad'; readonly problem: string } {
  let template: TemplateSource;
  try {
    template = parseTemplate(source, tokens);
  } catch (error) {
    return { kind: 'bad', problem: `the chat template does not parse: ${lineOf(error)}` };
  }
  const render = (conversation: PromptConversation, shape: Shape, addGenerationPrompt = true) =>
    renderWith(template, shaped(conversation, shape, template), { addGenerationPrompt });
  const probed = probeShape(source, render);
  if (probed === undefined) return { kind: 'bad', problem: 'the chat template cannot render one user message' };
  const shape = shapeWithMarks(render, probed.shape, thoughtsOf(source, [])?.splitIn(source));
  const inShape = (conversation: PromptConversation): string | undefined => render(conversation, shape);
  const roles = roleFormOf(inShape, probed.tools);
  const calls = callFormOf((conversation) => inShape(inRoleForm(conversation, roles)), probed.tools);
  const use = toolUseOf(source, { lists: probed.tools, shows: calls !== undefined }, toolFormat, (conversation) =>
    inShape(calls?.ids === undefined ? conversation : inCallForm(conversation, { ids: calls.ids })),
  );
  const turns = turnFormOf((messages, addGenerationPrompt) => render({ messages }, shape, addGenerationPrompt));
  return { kind: 'ok', template: new ChatTemplate(template, use, { shape, roles, calls: calls ?? {}, turns }) };
}

/** Throws a SyntaxError. */
function parseTemplate(source: string, tokens: TemplateTokens): TemplateSource {
  const thoughts = thoughtsOf(source, []);
  const template = {
    text: source,
    template: new JinjaTemplate(source),
    tokens,
    thinks: thoughts?.unasked ?? false,
    writesFormat: source.includes('(response_format | tojson)'),
    embedsResults: source.includes("if message['tool_responses']"),
    omitsTurn: source.includes('<|tool_call>call:'),
  };
  const render = (values: EffortValues): string | undefined => {
    const items = itemsOf(template, { messages: [{ role: 'user', content: 'Hello' }] }, { addGenerationPrompt: true });
    return tryRender(template.template, { ...items, ...values }, UNMARKED);
  };
  const efforts = probeEfforts(source, render, (prompt) => thoughts?.skipped(prompt) ?? false);
  return { efforts, ...template };
}

/** Undefined if the template threw, be it by its own `raise_exception` or for a feature that the renderer lacks. */
function renderWith(
  source: TemplateSource,
  shaped: Shaped,
  options: RenderOptions,
  marking: Marking = UNMARKED,
): string | undefined {
  const { reasoningEffort: effort } = options;
  const items = itemsOf(source, shaped, options, effort && source.efforts[effort]);
  const text = tryRender(source.template, items, marking);
  // A template may throw at a level beside something else in the conversation.
  return text ?? (effort && tryRender(source.template, itemsOf(source, shaped, options), marking));
}

/**
 * The text with the whole beginning of the model's turn, where a template of {@link TemplateSource.omitsTurn} leaves it out, or writes
 * only the empty thought of it. As in llama-server.
 */
function withOmittedTurn(source: TemplateSource, text: string, options: RenderOptions, marking: Marking): string {
  if (!source.omitsTurn || !options.addGenerationPrompt) return text;
  const end = marking.marked('<turn|>\n');
  const at = text.lastIndexOf(end);
  const tail = text.slice(at + end.length);
  if (at < 0 || tail.includes(marking.marked('<|turn>model'))) return text;
  const question = { messages: [{ role: 'user', content: 'Hello' }] };
  const rendered = (addGenerationPrompt: boolean): string =>
    renderWith(source, question, Object.assign({}, options, { addGenerationPrompt }), marking) ?? '';
  const begin = rendered(true).slice(rendered(false).length);
  return begin.endsWith(tail) ? text.slice(0, at + end.length) + begin : text;
}

/** What the template throws, if those are constant words of its own: others may quote the conversation. */
function ownWords(source: TemplateSource, shaped: Shaped, options: RenderOptions): string | undefined {
  try {
    source.template.render(itemsOf(source, shaped, options));
    return undefined;
  } catch (error) {
    const says = lineOf(error);
    return says.length >= LEAST_WORDS && source.text.includes(says) ? says : undefined;
  }
}

/** Characters of a template's own message, at least: shorter texts are in it by chance. */
const LEAST_WORDS = 12;

/** `effort`: the values of the level that is asked for. */
function itemsOf(
  source: Omit<TemplateSource, 'efforts'>,
  shaped: Shaped,
  options: RenderOptions,
  effort?: EffortValues,
): Record<string, unknown> {
  const { reasoningEffort, addGenerationPrompt, writtenSchema, switches = {} } = options;
  const now = new Date();
  return {
    bos_token: source.tokens.bos,
    eos_token: source.tokens.eos,
    add_generation_prompt: addGenerationPrompt,
    enable_thinking: reasoningEffort === undefined ? source.thinks : reasoningEffort !== 'none',
    date_string: formatDate(now, '%d %b %Y'),
    datetime: formatDate(now, '%b %d %Y'),
    ...KEEP_THOUGHTS,
    ...effort,
    ...Object.fromEntries(Object.entries(switches).filter(([name]) => !OURS.has(name))),
    ...(source.writesFormat && writtenSchema && { response_format: writtenSchema }),
    ...shaped,
  };
}

/** Names that carry the conversation or its marks. */
const OURS: ReadonlySet<string> = new Set(['messages', 'tools', 'bos_token', 'eos_token', 'add_generation_prompt']);

function tryRender(template: JinjaTemplate, items: Record<string, unknown>, marking: Marking): string | undefined {
  try {
    return template.render(items, marking);
  } catch {
    return undefined;
  }
}

function lineOf(error: unknown): string {
  return error instanceof Error ? (error.message.split('\n', 1)[0] ?? '') : 'unknown';
}
