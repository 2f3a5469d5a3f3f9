import type { ReplyFormat } from '../protocol/reply-format.js';
import { CallParser } from './calls/call-parser.js';
import type { CallConstraint, CallPiece } from './calls/call-text.js';
import { StopMatcher } from './stop-matcher.js';
import { ThoughtSplitter, type ReplyPiece } from './thought.js';

/** The newly parsed parts of a reply. Parts may be empty; their order within one result is not defined. */
export interface ReplyParts extends ReplyPiece {
  readonly calls: readonly CallPiece[];
}

/**
 * Converts one reply's token bytes to text: whole characters, thoughts and calls separated, and never a part of a stop
 * string.
 */
export class ReplyText {
  /** Streaming: bytes of an incomplete character are buffered. Invalid bytes become U+FFFD, as in web standards. */
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  readonly #thought: ThoughtSplitter | undefined;
  readonly #calls: CallParser | undefined;
  readonly #stops: StopMatcher;

  /**
   * `stops` end only the content: a caller that stops at a newline does not want thoughts or arguments to end there.
   * `constraint`: for {@link CallParser}.
   */
  constructor(
    stops: readonly string[],
    format: Pick<ReplyFormat, 'thought' | 'calls'> = {},
    constraint?: CallConstraint,
  ) {
    this.#thought = format.thought && new ThoughtSplitter(format.thought);
    this.#calls = format.calls && new CallParser(format.calls, constraint);
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

  /** The text may be within a thought, now or later. */
  get mayThink(): boolean {
    return this.#thought?.mayThink ?? false;
  }

  /** Adds one token's bytes; returns the newly parsed text, which is often empty. */
  push(bytes: Uint8Array): ReplyParts {
    const text = this.#decoder.decode(bytes, { stream: true });
    // A mark that ends the content may also be in a call's arguments or after them: parsing character by character shows which.
    const byCharacter = this.#calls !== undefined && this.#thought?.mayEndIn(text) === true;
    const all = { reasoning: '', content: '', calls: [] as CallPiece[] };
    for (const part of byCharacter ? text : [text]) {
      const { reasoning, content } = this.#withoutThoughts(part);
      const called = this.#calls?.push(content) ?? { content, calls: [] };
      all.reasoning += reasoning;
      all.content += this.#stops.push(called.content);
      all.calls.push(...called.calls);
    }
    return all;
  }

  /** Marks of thoughts within a call are text like any other. */
  #withoutThoughts(text: string): ReplyPiece {
    if (this.#thought === undefined) return { reasoning: '', content: text };
    const called = this.#calls?.reading === true && this.#thought.flowing;
    return called ? { reasoning: '', content: text } : this.#thought.push(text);
  }

  /** The reply has ended: returns the buffered text. Bytes of an incomplete character are dropped. */
  end(): ReplyParts {
    const { reasoning, content } = this.#thought?.end() ?? { reasoning: '', content: '' };
    const called = this.#calls?.push(content) ?? { content, calls: [] };
    const rest = called.content + (this.#calls?.end().content ?? '');
    return { reasoning, content: this.#stops.push(rest) + this.#stops.end(), calls: called.calls };
  }
}
