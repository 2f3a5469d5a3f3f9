import type { ReplyFormat } from '../protocol/messages.js';
import { CallParser } from './calls/call-parser.js';
import type { CallHold, CallPiece } from './calls/call-text.js';
import { StopMatcher } from './stop-matcher.js';
import { ThoughtSplitter, type ReplyPiece } from './thought.js';

/** What became certain of a reply. Its parts may be empty; that they come at once says nothing of their order. */
export interface ReplyParts extends ReplyPiece {
  readonly calls: readonly CallPiece[];
}

/**
 * Turns one reply's token bytes into text that may be shown: whole characters, thought and calls apart, never a part of a stop
 * string.
 */
export class ReplyText {
  /** Streaming: bytes of an unfinished character wait inside. Invalid bytes become U+FFFD, as everywhere in the web. */
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  readonly #thought: ThoughtSplitter | undefined;
  readonly #calls: CallParser | undefined;
  readonly #stops: StopMatcher;

  /**
   * `stops` end the content alone: a caller who stops at a newline wants no thought cut off at its first line, nor the
   * arguments of a call. `hold`: as {@link CallParser} wants it.
   */
  constructor(stops: readonly string[], format: Pick<ReplyFormat, 'thought' | 'calls'> = {}, hold?: CallHold) {
    this.#thought = format.thought && new ThoughtSplitter(format.thought);
    this.#calls = format.calls && new CallParser(format.calls, hold);
    this.#stops = new StopMatcher(stops);
  }

  /** The stop string that ended the reply, once found. */
  get matchedStop(): string | undefined {
    return this.#stops.matched;
  }

  /** Calls whose arguments are complete. */
  get calls(): number {
    return this.#calls?.calls ?? 0;
  }

  /** The text so far ends within a thought. */
  isThinking(): boolean {
    return this.#thought?.thinking ?? false;
  }

  /** Takes one token's bytes; returns the text that became certain, often none. */
  push(bytes: Uint8Array): ReplyParts {
    const text = this.#decoder.decode(bytes, { stream: true });
    const { reasoning, content } = this.#thought?.push(text) ?? { reasoning: '', content: text };
    const called = this.#calls?.push(content) ?? { content, calls: [] };
    return { reasoning, content: this.#stops.push(called.content), calls: called.calls };
  }

  /** The reply ended otherwise: returns the text held back. Bytes of a character that never was finished are dropped. */
  end(): ReplyParts {
    const { reasoning, content } = this.#thought?.end() ?? { reasoning: '', content: '' };
    const called = this.#calls?.push(content) ?? { content, calls: [] };
    const rest = called.content + (this.#calls?.end().content ?? '');
    return { reasoning, content: this.#stops.push(rest) + this.#stops.end(), calls: called.calls };
  }
}
