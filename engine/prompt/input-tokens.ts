/**
 * Tokens of the inputs of models that make a vector or a score of each: a text, or a query with a document. Callers' texts are data: none
 * of their characters become control tokens.
 */
import { fewestTokens } from './chat-prompt.js';
import { SpecialTexts } from './data-text.js';
import { concatTokens, tokenizeParts, type Vocabulary } from './tokens.js';

/** The tokens of all inputs, one after another, and of each how many. */
export interface InputTokens {
  readonly kind: 'inputs';
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

type Numbers = Uint32Array | readonly number[];

/** One input in three parts, of which the middle one may be cut. */
type InputParts = readonly [start: Numbers, body: Numbers, end: Numbers];

const NONE: readonly number[] = [];

/** Makes the tokens of inputs for one model. */
export class InputTokenizer {
  readonly #vocabulary: Vocabulary;
  readonly #specials: SpecialTexts;

  constructor(vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
    this.#specials = new SpecialTexts(vocabulary.specialTexts);
  }

  /** Of texts. */
  ofTexts(texts: readonly string[], limits: InputLimits): InputTokens | NoInputTokens {
    const { before, after } = this.#vocabulary.marks;
    return this.#collected(texts, limits, (text) => [before, this.#vocabulary.tokenize(text, false), after]);
  }

  /** Of a query with each of the documents. Of a pair that is too long, the end of the document is cut off. */
  ofPairs(query: string, documents: readonly string[], limits: InputLimits): InputTokens | NoInputTokens {
    const { pair, pairTemplate } = this.#vocabulary.marks;
    if (pairTemplate !== undefined) return this.#ofTemplate(pairTemplate, query, documents, limits);
    const start = [...pair.before, ...this.#vocabulary.tokenize(query, false), ...pair.between];
    return this.#collected(documents, limits, (text) => [start, this.#vocabulary.tokenize(text, false), pair.after]);
  }

  /** The template and its texts are tokenized as one, since a word may begin at the end of what the template has before it. */
  #ofTemplate(
    template: string,
    query: string,
    documents: readonly string[],
    limits: InputLimits,
  ): InputTokens | NoInputTokens {
    const [head = '', tail = ''] = template.split('{document}');
    const asked = head.split('{query}').flatMap((own, i) => (i === 0 ? [own] : [{ data: query }, own]));
    return this.#collected(documents, limits, (document) => {
      const whole = this.#tokensOf([...asked, { data: document }, tail]);
      if (whole.length <= limits.most || !limits.truncate) return [whole, NONE, NONE];
      return [this.#tokensOf(asked), this.#vocabulary.tokenize(document, false), this.#tokensOf([tail])];
    });
  }

  /** Of texts of the model's own, in which control tokens are meant, and callers' texts, in which none is. */
  #tokensOf(texts: readonly (string | { readonly data: string })[]): Uint32Array {
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
    partsOf: (input: string) => InputParts,
  ): InputTokens | NoInputTokens {
    const pieces: Numbers[] = [];
    const lengths: number[] = [];
    const truncated: number[] = [];
    for (const [input, given] of inputs.entries()) {
      const fewest = fewestTokens(this.#vocabulary, given);
      if (fewest > most && !truncate) return { kind: 'too-long', input, tokens: fewest, exact: false };
      const [start, body, end] = partsOf(given);
      const length = start.length + body.length + end.length;
      const room = most - start.length - end.length;
      if (length === 0) return { kind: 'empty', input };
      if (length > most && (!truncate || room < 1)) return { kind: 'too-long', input, tokens: length, exact: true };
      if (length > most) truncated.push(input);
      pieces.push(start, body.slice(0, room), end);
      lengths.push(Math.min(length, most));
    }
    return { kind: 'inputs', tokens: concatTokens(pieces), lengths: Uint32Array.from(lengths), truncated };
  }
}
