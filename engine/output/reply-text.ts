import { StopMatcher } from './stop-matcher.js';

/** Turns one reply's token bytes into text that may be shown: whole characters, and never a part of a stop string. */
export class ReplyText {
  /** Streaming: bytes of an unfinished character wait inside. Invalid bytes become U+FFFD, as everywhere in the web. */
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  readonly #stops: StopMatcher;

  constructor(stops: readonly string[]) {
    this.#stops = new StopMatcher(stops);
  }

  /** The stop string that ended the reply, once found. */
  get matchedStop(): string | undefined {
    return this.#stops.matched;
  }

  /** Takes one token's bytes; returns the text that became certain, often empty. */
  push(bytes: Uint8Array): string {
    return this.#stops.push(this.#decoder.decode(bytes, { stream: true }));
  }

  /** The reply ended otherwise: returns the text held back. Bytes of a character that never was finished are dropped. */
  end(): string {
    return this.#stops.end();
  }
}
