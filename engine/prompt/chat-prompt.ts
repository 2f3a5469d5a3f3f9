import type { CallChoice } from './call-format.js';
import { textOf, withMessages, type PromptConversation, type PromptMessage, type PromptPart } from './conversation.js';
import { Marking, unusedMark, type SpecialTexts, splitAtMarks } from './data-text.js';
import { regularHistory } from './history.js';
import { compileConstraint, weighed, type ReplyConstraint, type CompiledConstraint } from './reply-constraint.js';
import { grammarAfterHead } from '../grammar/gbnf.js';
import { QUICK_WORK, WorkBudget } from '../grammar/work.js';
import type { CallFormat, CallSyntax, ReplyFormat, ReplyGrammar, ThoughtFormat } from '../protocol/reply-format.js';
import { tokenPrompt, type Prompt } from '../protocol/prompt.js';
import type { ChatTemplate, RenderFailure, RenderOptions } from './template.js';
import type { Thoughts } from './thought-format.js';
import { withToolInstructions, withTrusted } from './tool-instructions.js';
import { tokenizeParts, tokenizePrompt, type Vocabulary } from './tokens.js';

/** What renders and tokenizes for one model. */
export interface PromptParts {
  readonly template: ChatTemplate;
  readonly vocabulary: Vocabulary;
  readonly specials: SpecialTexts;
  /** Absent: the model does not think. */
  readonly thoughts?: Thoughts;
  /** In place of these where tools are offered: the file has a template of its own for that. */
  readonly offering?: PromptParts;
}

/** How a reply is wanted. */
export interface ReplyOptions extends RenderOptions {
  /** Given when the conversation offers tools. */
  readonly calls?: CallChoice;
  /** The content is one JSON object. */
  readonly jsonObject?: boolean;
  /** The strict contract's: results of no call, and arguments that are not JSON, are refused. */
  readonly strictHistory?: boolean;
  /** What that object, or another JSON value, is valid against. Heeded with `jsonObject` alone. */
  readonly replySchema?: object;
  /** The most tokens of thought. Of a model whose thoughts have no known marks it has no effect. */
  readonly thoughtBudget?: number;
}

export type ChatPrompt =
  /** Without `format` all of a reply's text is content. With images there is one segment of text, perhaps empty, around each. */
  | { readonly kind: 'prompt'; readonly prompt: Prompt; readonly format?: ReplyFormat }
  | RenderFailure
  | (CompiledConstraint & { readonly kind: 'unservable' })
  /** Not compiled: the reply's constraint takes more work than QUICK_WORK. `syntax`: of calls, if tools are offered. */
  | { readonly kind: 'needs-compiler'; readonly syntax?: CallSyntax }
  /** Not tokenized: even of the longest tokens it would take this many. */
  | { readonly kind: 'too-long'; readonly atLeast: number };

/** How the reply's constraint is made: compiled here, only if that is quick or always, or elsewhere by compileConstraintInFull. */
export type ConstraintSource = 'quick' | 'here' | CompiledConstraint;

/**
 * A conversation as the tokens that llama.cpp would make of it, with special-token text in the caller's strings kept text.
 * `maxTokens`: what cannot fit is refused by its length alone, since tokenizing cannot be stopped.
 */
export function chatPrompt(
  all: PromptParts,
  given: PromptConversation,
  options: ReplyOptions,
  maxTokens: number,
  source: ConstraintSource = 'here',
): ChatPrompt {
  const images = markImages(given, [options.switches, options.replySchema]);
  if (images.kind === 'unmarkable') return { kind: 'failed', why: 'conversation' };
  const conversation = images.kind === 'marked' ? images.conversation : given;
  const { tools = [] } = conversation;
  const parts = partsFor(all, tools);
  const work = new WorkBudget();
  const excess = weighed(tools, work);
  if (excess) return excess;
  const constraint = constraintOf(parts.template.calls, tools, options);
  const compiled = compiledFrom(constraint, source, work);
  if (compiled.kind !== 'ok') return compiled;
  const rendered = promptPieces(parts, conversation, options);
  if (rendered.kind === 'failed') return rendered;
  const { pieces } = rendered;
  const atLeast = fewestTokens(parts.vocabulary, pieces.join(''));
  if (atLeast > maxTokens) return { kind: 'too-long', atLeast };
  const end = pieces.at(-1) ?? '';
  const format = withThoughtLimit(
    replyFormat(
      parts,
      end,
      compiled.calls,
      compiled.grammar && framed(parts, end, constraint, options, compiled.grammar),
    ),
    parts,
    options,
    { grammar: compiled.grammar, header: hasHeader(constraint) },
  );
  if (images.kind === 'none') {
    const prompt = tokenPrompt(tokenizePrompt(parts.vocabulary, pieces));
    return { kind: 'prompt', prompt, ...(format && { format }) };
  }
  const prompt = aroundImages(parts.vocabulary, sectionsOf(pieces, images.mark));
  // A template that leaves an image out, repeats it or ends with it.
  if (prompt.length !== images.count + 1 || prompt.at(-1)?.tokens.length === 0) {
    const message = given.messages.findIndex(({ content }) => Array.isArray(content));
    return { kind: 'failed', why: 'conversation', templateText: 'its template takes no images there', message };
  }
  return { kind: 'prompt', prompt, ...(format && { format }) };
}

/** Each section by itself, as libmtmd does: what is after an image has the tokens of a text's beginning. */
function aroundImages(vocabulary: Vocabulary, [first = [], ...rest]: readonly (readonly string[])[]): Prompt {
  const tokensAfter = (pieces: readonly string[]): Uint32Array =>
    pieces.every((piece) => piece === '') ? new Uint32Array(0) : tokenizeParts(vocabulary, pieces);
  return [
    { kind: 'tokens', tokens: tokenizePrompt(vocabulary, first) },
    ...rest.map((pieces) => ({ kind: 'tokens', tokens: tokensAfter(pieces) }) as const),
  ];
}

/** The pieces of a prompt's text, which are tokenized one by one: special texts that the template did not write are split. */
type Pieces = { readonly kind: 'pieces'; readonly pieces: readonly string[] };

/**
 * The text that a prompt is made of. A conversation that the template refuses in the forms that it was found to take is written in
 * the form that every template takes, with calls as text. What it still refuses is a text that it looks for.
 */
export function promptPieces(
  all: PromptParts,
  given: PromptConversation,
  options: ReplyOptions,
): Pieces | RenderFailure {
  const made = eitherWay(all, given, options);
  if (made.kind === 'pieces' || made.why !== 'conversation') return made;
  const message = refusedMessage(all, given, options);
  return message === undefined ? made : Object.assign({}, made, { message });
}

function eitherWay(all: PromptParts, given: PromptConversation, options: ReplyOptions): Pieces | RenderFailure {
  const regular = regularHistory(given, options.strictHistory);
  if (regular.kind !== 'ok') {
    const { kind: why, ...place } = regular;
    return { kind: 'failed', why, ...place };
  }
  const { conversation } = regular;
  const made = piecesOf(all, conversation, options, false);
  if (made.kind === 'pieces' || made.why !== 'conversation') return made;
  const plain = piecesOf(all, conversation, options, true);
  return plain.kind === 'pieces' ? plain : made;
}

function piecesOf(
  all: PromptParts,
  conversation: PromptConversation,
  options: ReplyOptions,
  plain: boolean,
): Pieces | RenderFailure {
  const { template, specials } = partsFor(all, conversation.tools);
  const constraint = constraintOf(template.calls, conversation.tools ?? [], options);
  const wanted = { offered: constraint.calls !== undefined, json: constraint.json !== undefined };
  const use = plain ? Object.assign({}, template.tools, { shows: false }) : template.tools;
  const instructed = withToolInstructions(conversation, use, wanted);
  const shaped = template.shape(instructed.conversation, { addGenerationPrompt: options.addGenerationPrompt, plain });
  if (shaped.kind === 'failed') return shaped;
  const written = writtenOf(constraint, options);
  const mark = unusedMark([shaped.shaped, written]);
  if (mark === undefined) return { kind: 'failed', why: 'conversation' };
  const marking = new Marking(specials, mark);
  const rendered = template.renderShaped(shaped.shaped, { ...options, ...written }, marking);
  if (rendered.kind === 'failed') return rendered;
  return {
    kind: 'pieces',
    pieces: marking.pieces(rendered.text).map((piece) => withTrusted(piece, instructed.trusted)),
  };
}

/** Longer conversations are not rendered again: to find the message takes up to twelve times what the refusal took. */
const MAX_CHARACTERS = 256 * 1024;

/** The index of the message at which the template refuses: it takes those before it alone. Undefined if that was not looked for. */
function refusedMessage(all: PromptParts, given: PromptConversation, options: ReplyOptions): number | undefined {
  const { messages, ...others } = given;
  const characters = messages.reduce((sum, { content }) => sum + (textOf(content)?.length ?? 0), 0);
  if (characters > MAX_CHARACTERS) return undefined;
  let [taken, refused] = [0, messages.length];
  while (refused - taken > 1) {
    const length = Math.floor((taken + refused) / 2);
    if (eitherWay(all, { messages: messages.slice(0, length), ...others }, options).kind === 'pieces') taken = length;
    else refused = length;
  }
  return refused - 1;
}

function partsFor(parts: PromptParts, tools: readonly object[] = []): PromptParts {
  return tools.length > 0 ? (parts.offering ?? parts) : parts;
}

/** What a template may write of a request besides its conversation. */
function writtenOf(
  { json }: ReplyConstraint,
  { switches }: ReplyOptions,
): Pick<RenderOptions, 'switches' | 'writtenSchema'> {
  return { ...(switches && { switches }), ...(json && { writtenSchema: json.schema ?? { type: 'object' } }) };
}

/** The constraint of a reply to such a request. */
export function constraintOf(
  syntax: CallSyntax | undefined,
  tools: readonly object[],
  { calls: choice, jsonObject, replySchema }: Pick<ReplyOptions, 'calls' | 'jsonObject' | 'replySchema'>,
): ReplyConstraint {
  return {
    ...(choice && syntax && tools.length > 0 && { calls: { syntax, choice, tools } }),
    ...(jsonObject === true && { json: { ...(replySchema && { schema: replySchema }) } }),
  };
}

/** The grammar of a whole reply with what the model writes around its content. */
function framed(
  { thoughts, template }: PromptParts,
  prompt: string,
  { calls }: ReplyConstraint,
  { reasoningEffort }: ReplyOptions,
  { gbnf, ...more }: Omit<ReplyGrammar, 'after'>,
): Omit<ReplyGrammar, 'after'> {
  const { userRecipient } = template.tools;
  if (userRecipient !== undefined && calls === undefined)
    return { gbnf: grammarAfterHead(gbnf, { header: `${userRecipient}\n` }), ...more };
  const header = hasHeader({ calls });
  return { gbnf: thoughts?.framed(gbnf, prompt, { effort: reasoningEffort, header }) ?? gbnf, ...more };
}

/** The constrained part of a reply is content, or may be. */
function hasHeader({ calls }: { readonly calls?: ReplyConstraint['calls'] | undefined }): boolean {
  return calls === undefined || calls.syntax.answer !== undefined;
}

/** `grammar`: of the reply's content or calls alone. */
function withThoughtLimit(
  format: ReplyFormat | undefined,
  { thoughts, vocabulary }: PromptParts,
  { thoughtBudget: tokens }: ReplyOptions,
  { grammar, header }: { readonly grammar: Omit<ReplyGrammar, 'after'> | undefined; readonly header: boolean },
): ReplyFormat | undefined {
  if (tokens === undefined || thoughts === undefined || format?.thought === undefined) return format;
  const closing = [...tokenizeParts(vocabulary, [thoughts.closing])];
  const behind = grammar && Object.assign({}, grammar, { gbnf: thoughts.behindClosing(grammar.gbnf, header) });
  return Object.assign({}, format, { thoughtLimit: { tokens, closing, ...(behind && { grammar: behind }) } });
}

function compiledFrom(
  constraint: ReplyConstraint,
  source: ConstraintSource,
  work: WorkBudget,
): CompiledConstraint | (ChatPrompt & { kind: 'needs-compiler' }) {
  if (typeof source === 'object') return source;
  if (source === 'quick') work.limit(QUICK_WORK);
  const compiled = compileConstraint(constraint, work);
  if (compiled.kind === 'ok' || !work.stopped) return compiled;
  return { kind: 'needs-compiler', ...(constraint.calls && { syntax: constraint.calls.syntax }) };
}

/** `grammar` constrains the content of the whole reply. */
function replyFormat(
  { thoughts, vocabulary, template }: PromptParts,
  prompt: string,
  calls: CallFormat | undefined,
  grammar: Omit<ReplyGrammar, 'after'> | undefined,
): ReplyFormat | undefined {
  const { userRecipient } = template.tools;
  const addressed = userRecipient !== undefined && calls?.syntax.userRecipient === undefined;
  const answerLead = calls?.syntax.answerLead;
  const header = addressed ? `${userRecipient}\n` : thoughts === undefined ? answerLead : undefined;
  const thinking = header === undefined ? thoughts?.replyFormat(prompt) : headedBy(header);
  if (calls === undefined && grammar === undefined) return thinking;
  const parts = calls === undefined ? [] : textsOf(calls.syntax);
  const marks = vocabulary.specialTexts.filter((text) => text !== '' && parts.some((part) => part.includes(text)));
  // If the prompt has begun a thought, the grammar applies after it. Otherwise it takes one itself, where one is asked for (framed).
  const after = thinking?.thought.open === true ? thinking.thought.ends[0] : undefined;
  return {
    markers: [...new Set([...(thinking?.markers ?? []), ...marks])],
    ...(thinking && { thought: (calls && thoughts?.withCalls(thinking.thought, calls)) ?? thinking.thought }),
    ...(calls && { calls }),
    ...(grammar !== undefined && { grammar: { ...grammar, ...(after !== undefined && { after }) } }),
  };
}

/** No thoughts, but a header in front of the content. */
function headedBy(header: string): ReplyFormat & { readonly thought: ThoughtFormat } {
  return { thought: { open: false, starts: [], ends: [], implicitEnds: [], headers: [header] }, markers: [] };
}

/** All texts that a syntax has marks in. */
function textsOf({
  lead = '',
  answerLead = '',
  open,
  alsoOpen = [],
  between,
  alsoBetween = [],
  next = '',
  close,
  ...more
}: CallSyntax): string[] {
  return [lead, answerLead, open, ...alsoOpen, between, ...alsoBetween, next, close, ...notationTexts(more.arguments)];
}

function notationTexts(notation: CallSyntax['arguments']): string[] {
  if (notation?.kind === 'bare') return [notation.quote];
  if (notation?.kind === 'nested') return [notation.prefix];
  return notation?.kind === 'tagged' ? [notation.open, ...Object.values(notation.between), notation.close] : [];
}

/** A lower bound of the text's tokens, from its length. */
export function fewestTokens(vocabulary: Vocabulary, text: string): number {
  return Math.ceil(Buffer.byteLength(text) / vocabulary.longestTokenBytes);
}

/** A conversation whose images are a mark in the text: a character that it has nowhere else. */
type MarkedImages =
  | { readonly kind: 'none' }
  | {
      readonly kind: 'marked';
      readonly conversation: PromptConversation;
      readonly mark: string;
      readonly count: number;
    }
  /** Every character that could be the mark is in the text. */
  | { readonly kind: 'unmarkable' };

/**
 * Puts marks in place of images, as llama-server does with its own: a template is given text alone. A mark stands in the text
 * without line breaks around it; other parts are joined with one. `otherTexts`: the caller's other strings that a template may write.
 */
export function markImages(conversation: PromptConversation, otherTexts?: unknown): MarkedImages {
  const { messages } = conversation;
  const count = messages.reduce((sum, { content }) => sum + partsOf(content).filter(isImage).length, 0);
  if (count === 0) return { kind: 'none' };
  // Without the images' own data, which is long and has no such character.
  const texts = messages.map((message) => Object.assign({}, message, { content: joined(message, '') }));
  const mark = unusedMark([withMessages(conversation, texts), otherTexts]);
  if (mark === undefined) return { kind: 'unmarkable' };
  const marked = messages.map((message) =>
    partsOf(message.content).some(isImage) ? Object.assign({}, message, { content: joined(message, mark) }) : message,
  );
  return { kind: 'marked', conversation: withMessages(conversation, marked), mark, count };
}

/** Pieces of a rendered text, split at the marks of images: the pieces before the first, between them, and after the last. */
function sectionsOf(pieces: readonly string[], mark: string): readonly (readonly string[])[] {
  const sections: string[][] = [[]];
  for (const piece of pieces) {
    const [first = '', ...rest] = splitAtMarks(piece, mark);
    sections.at(-1)?.push(first);
    for (const each of rest) sections.push([each]);
  }
  return sections;
}

function partsOf(content: PromptMessage['content']): readonly PromptPart[] {
  return typeof content === 'string' || !content ? [] : content;
}

function isImage({ type }: PromptPart): boolean {
  return type === 'image_url';
}

function joined({ content }: PromptMessage, mark: string): string {
  if (typeof content === 'string') return content;
  let text = '';
  let afterImage = false;
  for (const part of partsOf(content)) {
    const image = isImage(part);
    if (!image && part.text === undefined) continue;
    if (!image && !afterImage && text !== '') text += '\n';
    text += image ? mark : (part.text ?? '');
    afterImage = image;
  }
  return text;
}
