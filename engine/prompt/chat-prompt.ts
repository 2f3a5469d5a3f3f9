import { callsFormat, instructed, type CallChoice, type CallsFormat } from './call-format.js';
import type { PromptConversation } from './conversation.js';
import { guard, type SpecialTexts } from './data-text.js';
import { dataGrammar } from '../grammar/json.js';
import { QUICK_WORK, unlessUnservable, Work } from '../grammar/work.js';
import type { CallFormat, CallSyntax, ReplyFormat, ReplyGrammar } from '../protocol/messages.js';
import { tokenPrompt, type Prompt } from '../protocol/prompt.js';
import type { ChatTemplate, RenderFailure, RenderOptions } from './template.js';
import type { Thoughts } from './thought-format.js';
import { tokenizePrompt, type Vocabulary } from './tokens.js';

/** What renders and tokenizes for one model. */
export interface PromptParts {
  readonly template: ChatTemplate;
  readonly vocabulary: Vocabulary;
  readonly specials: SpecialTexts;
  /** Absent: the model does not think. */
  readonly thoughts?: Thoughts;
}

/** How a reply is wanted. */
export interface ReplyOptions extends RenderOptions {
  /** Given when the conversation offers tools. */
  readonly calls?: CallChoice;
  /** The content is one JSON object. */
  readonly jsonObject?: boolean;
}

export type ChatPrompt =
  /** Without `format` all of a reply's text is content. */
  | { readonly kind: 'prompt'; readonly prompt: Prompt; readonly format?: ReplyFormat }
  | RenderFailure
  /** No reply can be held to what the tools take. `why`: what is wrong with that, to follow its name. */
  | (CallsFormat & { readonly kind: 'unservable' })
  /** Not compiled: what holds replies to the tools takes more work than QUICK_WORK. */
  | { readonly kind: 'dear'; readonly compile: CallsOrder }
  /** Not tokenized: even of the longest tokens it would take this many. */
  | { readonly kind: 'too-long'; readonly atLeast: number };

/** What the calls' grammar is compiled from, beside the tools themselves. */
export interface CallsOrder {
  readonly syntax: CallSyntax;
  readonly choice: CallChoice;
  readonly json: boolean;
}

/** Where the calls' grammar comes from: compiled here, only if it is quick or always, or elsewhere by {@link compileCalls}. */
export type CallsSource = 'quick' | 'here' | CallsFormat;

/** The format of calls of `tools`, whatever work it takes within the bound. */
export function compileCalls(tools: readonly object[], { syntax, choice, json }: CallsOrder): CallsFormat {
  const work = new Work();
  return unlessUnservable(() => work.weigh(tools)) ?? callsFormat(syntax, tools, choice, json, work);
}

/**
 * A conversation as the tokens that llama.cpp would make of it, with special-token text in the caller's strings kept text.
 * `maxTokens`: what cannot fit is refused by its length alone, since tokenizing cannot be stopped.
 */
export function chatPrompt(
  parts: PromptParts,
  conversation: PromptConversation,
  options: ReplyOptions,
  maxTokens: number,
  source: CallsSource = 'here',
): ChatPrompt {
  const { calls: syntax } = parts.template;
  const { tools = [] } = conversation;
  const work = new Work();
  const weighed = unlessUnservable(() => work.weigh(tools));
  if (weighed) return weighed;
  const json = options.jsonObject === true;
  const offer = options.calls && syntax && tools.length > 0 ? { syntax, choice: options.calls, json } : undefined;
  const shaped = parts.template.shape(offer ? instructed(conversation, offer.syntax, json) : conversation);
  if (shaped.kind === 'failed') return shaped;
  const calls = offer && callsOf(offer, tools, source, work);
  if (calls?.kind === 'unservable' || calls?.kind === 'dear') return calls;
  const guarded = guard(shaped.shaped, parts.specials);
  if (guarded.kind === 'unmarkable') return { kind: 'failed', why: 'conversation' };
  const rendered = parts.template.renderShaped(guarded.value, options);
  if (rendered.kind === 'failed') return rendered;
  const atLeast = fewestTokens(parts.vocabulary, rendered.text);
  if (atLeast > maxTokens) return { kind: 'too-long', atLeast };
  const pieces = guarded.mark === undefined ? [rendered.text] : rendered.text.split(guarded.mark);
  const grammar = calls ? calls.grammar : json ? { gbnf: dataGrammar } : undefined;
  const format = replyFormat(parts, rendered.text, calls?.calls, grammar);
  const prompt = tokenPrompt(tokenizePrompt(parts.vocabulary, pieces));
  return { kind: 'prompt', prompt, ...(format && { format }) };
}

function callsOf(
  order: CallsOrder,
  tools: readonly object[],
  source: CallsSource,
  work: Work,
): CallsFormat | (ChatPrompt & { kind: 'dear' }) {
  if (typeof source === 'object') return source;
  if (source === 'quick') work.limit(QUICK_WORK);
  const made = callsFormat(order.syntax, tools, order.choice, order.json, work);
  return made.kind === 'unservable' && work.stopped ? { kind: 'dear', compile: order } : made;
}

/** `grammar` holds the content of the whole reply. */
function replyFormat(
  { thoughts, vocabulary }: PromptParts,
  prompt: string,
  calls: CallFormat | undefined,
  grammar: Omit<ReplyGrammar, 'after'> | undefined,
): ReplyFormat | undefined {
  const thinking = thoughts?.replyFormat(prompt);
  if (calls === undefined && grammar === undefined) return thinking;
  const { open = '', between = '', next = '', close = '' } = calls?.syntax ?? {};
  const marks = vocabulary.specialTexts.filter(
    (text) => text !== '' && [open, between, next, close].some((part) => part.includes(text)),
  );
  // A thought that the prompt has begun comes first; one that it has not begun is not to come.
  const after = thinking?.thought.open === true ? thinking.thought.ends[0] : undefined;
  return {
    markers: [...new Set([...(thinking?.markers ?? []), ...marks])],
    ...(thinking && { thought: thinking.thought }),
    ...(calls && { calls }),
    ...(grammar !== undefined && { grammar: { ...grammar, ...(after !== undefined && { after }) } }),
  };
}

/** A lower bound of the text's tokens, from its length. */
export function fewestTokens(vocabulary: Vocabulary, text: string): number {
  return Math.ceil(Buffer.byteLength(text) / vocabulary.longestTokenBytes);
}
