import type { ThoughtFormat } from '../protocol.js';
import { StopMatcher } from './stop-matcher.js';
import { ThoughtSplitter, type ReplyPiece } from './thought.js';

/** Turns one reply's token bytes into text that may be shown: whole characters, thought apart, never a part of a stop string. */
export class ReplyText {
  /** Streaming: bytes of an unfinished character wait inside. Invalid bytes become U+FFFD, as everywhere in the web. */
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  readonly #thought: ThoughtSplitter | undefined;
  readonly #stops: StopMatcher;

  /** `stops` end the content alone: a caller who stops at a newline wants no thought cut off at its first line. */
  constructor(stops: readonly string[], thought?: ThoughtFormat) {
    this.#thought = thought && new ThoughtSplitter(thought);
    this.#stops = new StopMatcher(stops);
  }

  /** The stop string that ended the reply, once found. */
  get matchedStop(): string | undefined {
    return this.#stops.matched;
  }

  /** The text so far ends within a thought. */
  isThinking(): boolean {
    return this.#thought?.thinking ?? false;
  }

  /** Takes one token's bytes; returns the text that became certain, often none. */
  push(bytes: Uint8Array): ReplyPiece {
    const text = this.#decoder.decode(bytes, { stream: true });
    const { reasoning, content } = this.#thought?.push(text) ?? { reasoning: '', content: text };
    return { reasoning, content: this.#stops.push(content) };
  }

  /** The reply ended otherwise: returns the text held back. Bytes of a character that never was finished are dropped. */
  end(): ReplyPiece {
    const { reasoning, content } = this.#thought?.end() ?? { reasoning: '', content: '' };
    return { reasoning, content: this.#stops.push(content) + this.#stops.end() };
  }
}
