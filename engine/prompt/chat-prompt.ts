import { callsFormat, instructed, type CallChoice, type CallsFormat } from './call-format.js';
import type { PromptConversation } from './conversation.js';
import { guard, type SpecialTexts } from './data-text.js';
import { dataGrammar } from '../grammar/json.js';
import { unlessUnservable, Work } from '../grammar/work.js';
import type { CallFormat, ReplyFormat, ReplyGrammar } from '../protocol/messages.js';
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
  | { readonly kind: 'tokens'; readonly tokens: Uint32Array; readonly format?: ReplyFormat }
  | RenderFailure
  /** No reply can be held to what the tools take. `why`: what is wrong with that, to follow its name. */
  | (CallsFormat & { readonly kind: 'unservable' })
  /** Not tokenized: even of the longest tokens it would take this many. */
  | { readonly kind: 'too-long'; readonly atLeast: number };

/**
 * A conversation as the tokens that llama.cpp would make of it, with special-token text in the caller's strings kept text.
 * `maxTokens`: what cannot fit is refused by its length alone, since tokenizing cannot be stopped.
 */
export function chatPrompt(
  parts: PromptParts,
  conversation: PromptConversation,
  options: ReplyOptions,
  maxTokens: number,
): ChatPrompt {
  const { calls: syntax } = parts.template;
  const { tools = [] } = conversation;
  const work = new Work();
  const weighed = unlessUnservable(() => work.weigh(tools));
  if (weighed) return weighed;
  const offer = options.calls && syntax && tools.length > 0 ? { syntax, choice: options.calls } : undefined;
  const shaped = parts.template.shape(
    offer ? instructed(conversation, offer.syntax, options.jsonObject === true) : conversation,
  );
  if (shaped.kind === 'failed') return shaped;
  const calls = offer && callsFormat(offer.syntax, tools, offer.choice, options.jsonObject ?? false, work);
  if (calls?.kind === 'unservable') return calls;
  const guarded = guard(shaped.shaped, parts.specials);
  if (guarded.kind === 'unmarkable') return { kind: 'failed', why: 'conversation' };
  const rendered = parts.template.renderShaped(guarded.value, options);
  if (rendered.kind === 'failed') return rendered;
  const atLeast = fewestTokens(parts.vocabulary, rendered.text);
  if (atLeast > maxTokens) return { kind: 'too-long', atLeast };
  const pieces = guarded.mark === undefined ? [rendered.text] : rendered.text.split(guarded.mark);
  const grammar = calls ? calls.grammar : options.jsonObject === true ? { gbnf: dataGrammar } : undefined;
  const format = replyFormat(parts, rendered.text, calls?.calls, grammar);
  return { kind: 'tokens', tokens: tokenizePrompt(parts.vocabulary, pieces), ...(format && { format }) };
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
