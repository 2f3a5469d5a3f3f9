import { Template } from '@huggingface/jinja';
import type { CallSyntax } from '../protocol.js';
import { shapeConversation, type PromptConversation, type Shape, type Shaped } from './conversation.js';
import { callSyntaxOf } from './call-syntax.js';
import { probeShape } from './template-probe.js';

/** Texts that templates ask for by name. */
export interface TemplateTokens {
  readonly bos: string;
  readonly eos: string;
}

export interface RenderOptions {
  readonly addGenerationPrompt: boolean;
  /** `none` turns thinking off (`enable_thinking` false); absent: the template's own default. */
  readonly reasoningEffort?: string;
}

/** `why` is for the caller's message; a template's own words are not passed on, since they may quote the conversation. */
export interface RenderFailure {
  readonly kind: 'failed';
  readonly why: 'tools' | 'arguments' | 'conversation';
}

export type Rendered = { readonly kind: 'text'; readonly text: string } | RenderFailure;

/** What a template can express, found out by rendering. */
export interface TemplateCapabilities {
  readonly tools: boolean;
  readonly system: boolean;
}

/** A model's chat template, and the form of conversation that it was found to cope with. */
export class ChatTemplate {
  readonly capabilities: TemplateCapabilities;
  /** How its model writes calls; absent: the template has no tools. */
  readonly calls: CallSyntax | undefined;
  readonly #template: Template;
  readonly #tokens: TemplateTokens;
  readonly #shape: Shape;

  constructor(template: Template, tokens: TemplateTokens, shape: Shape, calls: CallSyntax | undefined) {
    this.capabilities = { tools: calls !== undefined, system: shape.system };
    this.calls = calls;
    this.#template = template;
    this.#tokens = tokens;
    this.#shape = shape;
  }

  /** Renders a conversation. Never throws: what the template cannot express is a returned failure. */
  render(conversation: PromptConversation, options: RenderOptions): Rendered {
    const shaped = this.shape(conversation);
    return shaped.kind === 'failed' ? shaped : this.renderShaped(shaped.shaped, options);
  }

  /** The first half of `render`: the conversation as the template will see it, so that its strings can be looked at. */
  shape(conversation: PromptConversation): { readonly kind: 'shaped'; readonly shaped: Shaped } | RenderFailure {
    const offered = conversation.tools !== undefined && conversation.tools.length > 0;
    if (offered && !this.capabilities.tools) return { kind: 'failed', why: 'tools' };
    try {
      return { kind: 'shaped', shaped: shapeConversation(conversation, this.#shape) };
    } catch {
      return { kind: 'failed', why: 'arguments' };
    }
  }

  /** The second half of `render`. */
  renderShaped(shaped: Shaped, options: RenderOptions): Rendered {
    const text = renderWith(this.#template, this.#tokens, shaped, options);
    return text === undefined ? { kind: 'failed', why: 'conversation' } : { kind: 'text', text };
  }
}

/** Parses and probes a template. `problem` is one line for the operator. */
export function makeTemplate(
  source: string,
  tokens: TemplateTokens,
): { readonly kind: 'ok'; readonly template: ChatTemplate } | { readonly kind: 'bad'; readonly problem: string } {
  let template: Template;
  try {
    template = new Template(source);
  } catch (error) {
    return { kind: 'bad', problem: `the chat template does not parse: ${lineOf(error)}` };
  }
  const render = (conversation: PromptConversation, shape: Shape) =>
    renderWith(template, tokens, shapeConversation(conversation, shape), { addGenerationPrompt: true });
  const probed = probeShape(render);
  if (probed === undefined) return { kind: 'bad', problem: 'the chat template cannot render one user message' };
  const { shape, tools } = probed;
  const calls = tools ? callSyntaxOf((conversation) => render(conversation, shape)) : undefined;
  return { kind: 'ok', template: new ChatTemplate(template, tokens, shape, calls) };
}

/** undefined: the template threw, be it by its own `raise_exception` or for a feature that the renderer lacks. */
function renderWith(
  template: Template,
  tokens: TemplateTokens,
  shaped: Shaped,
  options: RenderOptions,
): string | undefined {
  const effort = options.reasoningEffort;
  try {
    return template.render({
      ...shaped,
      bos_token: tokens.bos,
      eos_token: tokens.eos,
      add_generation_prompt: options.addGenerationPrompt,
      ...(effort === undefined ? {} : { enable_thinking: effort !== 'none', reasoning_effort: effort }),
    });
  } catch {
    return undefined;
  }
}

function lineOf(error: unknown): string {
  return error instanceof Error ? (error.message.split('\n', 1)[0] ?? '') : 'unknown';
}
