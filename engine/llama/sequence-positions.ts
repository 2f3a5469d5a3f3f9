import type { Part } from '../scheduler/decoder.js';

/** An image whose embeddings move positions by less than their number. */
interface Span {
  /** Its first token, and the number of them. */
  readonly at: number;
  readonly tokens: number;
  readonly positions: number;
}

/**
 * How many tokens a sequence has, and at which of llama.cpp's positions. The two differ after images of models whose
 * positions have two dimensions (M-RoPE): all embeddings of an image have its first position in time, and what follows
 * is after the longer of its sides. A sequence has a part of such an image only while it is evaluated.
 */
export class SequencePositions {
  #length = 0;
  #spans: Span[] = [];

  /** Tokens. */
  get length(): number {
    return this.#length;
  }

  /** The last position that llama.cpp has of it; -1: none. */
  get last(): number {
    const span = this.#spans.at(-1);
    const within = span !== undefined && this.#length <= span.at + span.tokens;
    return within ? this.at(span.at) : this.at(this.#length) - 1;
  }

  /** The position of the next token; undefined within an image, where there is none for a token. */
  get next(): number | undefined {
    const span = this.#spans.at(-1);
    return span !== undefined && this.#length < span.at + span.tokens ? undefined : this.at(this.#length);
  }

  /** The position of the token with this index, or of the one that comes next; within an image that of its first one. */
  at(token: number): number {
    let position = token;
    for (const { at, tokens, positions } of this.#spans) {
      if (token < at + tokens) return token > at ? position - (token - at) : position;
      position -= tokens - positions;
    }
    return position;
  }

  /** Counts a part's tokens; returns the position of the first, of embeddings that of their image. */
  extend(part: Part): number {
    const at = this.#length;
    const first = part.kind === 'embeddings' ? at - part.image.index : at;
    this.#length += part.tokens.length;
    if (part.kind === 'embeddings' && part.image.columns > 0 && part.image.index === 0) {
      this.#spans.push({ at, tokens: part.image.of, positions: part.image.positions });
    }
    return this.at(first);
  }

  /** The sequence now has this many tokens: fewer than before, or more that have one position each. */
  become(length: number): void {
    this.#length = length;
    this.#spans = this.#spans.filter(({ at }) => at < length);
  }

  /** The sequence now has the same tokens as the other one. */
  copy(other: SequencePositions): void {
    this.#length = other.#length;
    this.#spans = [...other.#spans];
  }
}
