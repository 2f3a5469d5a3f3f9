/**
 * Tokens of the inputs of models that make a vector or a score of each: a text, or a query with a document. Callers' texts are data: none
 * of their characters become control tokens.
 */
import { fewestTokens } from './chat-prompt.js';
import { SpecialTexts } from './data-text.js';
import { concatTokens, tokenizeParts, type Vocabulary } from './tokens.js';

/** The tokens of all inputs, and of each how many. */
export interface InputTokens {
  readonly kind: 'inputs';
  /** Those with which each input begins: of a query, which would otherwise be there once for each of thousands of documents. */
  readonly head: Uint32Array;
  /** The others, one input after another, and of each input how many it has with the head. */
  readonly tokens: Uint32Array;
  readonly lengths: Uint32Array;
  /** Indexes of the inputs whose ends were cut off. */
  readonly truncated: readonly number[];
}

/** Why there are none. `input`: its index. */
export type NoInputTokens =
  /** `exact` false: `tokens` is a lower bound. */
  | { readonly kind: 'too-long'; readonly input: number; readonly tokens: number; readonly exact: boolean }
  | { readonly kind: 'empty'; readonly input: number };

/** What becomes of an input of more tokens than `most`: it is refused, or its end is cut off. */
export interface InputLimits {
  readonly most: number;
  readonly truncate: boolean;
}

type Made = InputTokens | NoInputTokens;
type Numbers = Uint32Array | readonly number[];

/** What follows the head in one input; the end of the body may be cut off. */
type InputParts = readonly [body: Uint32Array, end: Numbers];

/** Texts of the model's own, in which control tokens are meant, and callers' texts, in which none is. */
type Texts = readonly (string | { readonly data: string })[];

const NONE: readonly number[] = [];

/** Makes the tokens of inputs for one model. */
export class InputTokenizer {
  readonly #vocabulary: Vocabulary;
  readonly #specials: SpecialTexts;

  constructor(vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
    this.#specials = new SpecialTexts(vocabulary.specialTexts);
  }

  ofTexts(texts: readonly string[], limits: InputLimits): InputTokens | NoInputTokens {
    const { before, after } = this.#vocabulary.marks;
    return this.#collected(texts, limits, NONE, (text) => [concatTokens([before, this.#bodyOf(text)]), after]);
  }

  /** Of a query with each of the documents. Of a pair that is too long, the end of the document is cut off. */
  ofPairs(query: string, documents: readonly string[], limits: InputLimits): InputTokens | NoInputTokens {
    const { pair, pairTemplate } = this.#vocabulary.marks;
    if (pairTemplate !== undefined) return this.#ofTemplate(pairTemplate, query, documents, limits);
    const head = [...pair.before, ...this.#bodyOf(query), ...pair.between];
    return this.#collected(documents, limits, head, (text) => [this.#bodyOf(text), pair.after]);
  }

  /**
   * The template and its texts are tokenized as one, since a word may begin at the end of what the template has before it. Where a line
   * of the template begins between query and document, what is above it is tokenized once: 8,000 tokens take 11 ms with each document.
   */
  #ofTemplate(template: string, query: string, documents: readonly string[], limits: InputLimits): Made {
    const [before = '', tail = ''] = template.split('{document}');
    const [, above = '', line = ''] = /^(.*\{query\}.*\n)(\S.*)$/s.exec(before) ?? [];
    const textsOf = (text: string): Texts =>
      text.split('{query}').flatMap((own, i) => (i === 0 ? [own] : [{ data: query }, own]));
    const tokensOf = (start: Texts, document: string): Uint32Array =>
      this.#tokensOf([...start, { data: document }, tail]);
    const [head, whole, [first = '']] = [this.#tokensOf(textsOf(above)), textsOf(before), documents];
    const isDivided = concatTokens([head, tokensOf([line], first)]).join() === tokensOf(whole, first).join();
    const [shared, start] = isDivided && line !== '' ? [head, [line]] : [NONE, whole];
    return this.#collected(documents, limits, shared, (document) => {
      const tokens = tokensOf(start, document);
      if (shared.length + tokens.length <= limits.most || !limits.truncate) return [tokens, NONE];
      return [concatTokens([this.#tokensOf(start), this.#bodyOf(document)]), this.#tokensOf([tail])];
    });
  }

  #bodyOf(text: string): Uint32Array {
    return this.#vocabulary.tokenize(text, false);
  }

  #tokensOf(texts: Texts): Uint32Array {
    const pieces = [''];
    for (const text of texts) {
      const [first = '', ...rest] = typeof text === 'string' ? [text] : this.#specials.breakUp(text.data);
      pieces.push((pieces.pop() ?? '') + first, ...rest);
    }
    return tokenizeParts(this.#vocabulary, pieces);
  }

  #collected(
    inputs: readonly string[],
    { most, truncate }: InputLimits,
    head: Numbers,
    partsOf: (input: string) => InputParts,
  ): InputTokens | NoInputTokens {
    const pieces: Numbers[] = [];
    const lengths: number[] = [];
    const truncated: number[] = [];
    for (const [input, given] of inputs.entries()) {
      const fewest = fewestTokens(this.#vocabulary, given);
      if (fewest > most && !truncate) return { kind: 'too-long', input, tokens: fewest, exact: false };
      const [body, end] = partsOf(given);
      const room = most - head.length - end.length;
      const length = head.length + body.length + end.length;
      if (length === 0) return { kind: 'empty', input };
      if (length > most && (!truncate || room < 1)) return { kind: 'too-long', input, tokens: length, exact: true };
      if (length > most) truncated.push(input);
      pieces.push(body.slice(0, room), end);
      lengths.push(Math.min(length, most));
    }
    const [tokens, own] = [concatTokens(pieces), Uint32Array.from(head)];
    return { kind: 'inputs', head: own, tokens, lengths: Uint32Array.from(lengths), truncated };
  }
}
