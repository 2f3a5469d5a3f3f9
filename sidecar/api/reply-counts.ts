import type { Clock } from '../lib/clock.js';
import type { ModelMeter } from '../telemetry/model-metrics.js';
import type { UsageSession } from './usage-session.js';
import type { RequestContext } from './request-context.js';

/** The mean time of a token is observed over so many tokens, and over what is left at a reply's end if that is not fewer than these. */
const WINDOW = 32;
const LEAST_TOKENS = 8;

/** And over this time, ms: an engine whose steps are short sends their tokens together. */
const LEAST_MS = 10;

/** One running reply. Times are clock readings. */
interface Progress {
  tokens: number;
  readonly firstTokens: number;
  readonly firstAt: number;
  lastAt: number;
  /** Where the present window began. */
  windowTokens: number;
  windowAt: number;
}

/**
 * Completion tokens over all replies of one request, finished and running, and the time between them.
 * Called for each piece, so it allocates only for a new reply.
 */
export class ReplyCounts {
  readonly #clock: Clock;
  readonly #context: RequestContext;
  readonly #usage: UsageSession;
  readonly #meter: ModelMeter | undefined;
  readonly #replies = new Map<number, Progress>();
  reasoningTokens = 0;

  constructor(clock: Clock, context: RequestContext, usage: UsageSession) {
    this.#clock = clock;
    this.#context = context;
    this.#usage = usage;
    this.#meter = context.meter;
  }

  /** A piece arrived; its reply has so many tokens now. */
  piece(choice: number, tokens: number): void {
    const now = this.#clock.now();
    const reply = this.#replies.get(choice);
    if (reply === undefined) {
      const window = { windowTokens: tokens, windowAt: now };
      this.#replies.set(choice, { tokens, firstTokens: tokens, firstAt: now, lastAt: now, ...window });
      this.#moved(tokens);
      return;
    }
    this.#meter?.piece(now - reply.lastAt);
    reply.lastAt = now;
    this.#grown(reply, tokens);
    this.#observe(reply, now, WINDOW);
  }

  /** A reply is complete. It may have had no piece at all. */
  finished(end: {
    readonly choice: number;
    readonly completionTokens: number;
    readonly reasoningTokens: number;
  }): void {
    const { choice, completionTokens, reasoningTokens } = end;
    this.reasoningTokens += reasoningTokens;
    const reply = this.#replies.get(choice);
    if (reply === undefined) {
      this.#moved(completionTokens);
      return;
    }
    const now = this.#clock.now();
    this.#meter?.replied(completionTokens - reply.firstTokens, now - reply.firstAt);
    this.#grown(reply, completionTokens);
    this.#observe(reply, now, LEAST_TOKENS);
  }

  /** Ends the present window of a reply, if it has as many tokens as this and took long enough. */
  #observe(reply: Progress, now: number, least: number): void {
    const tokens = reply.tokens - reply.windowTokens;
    const ms = now - reply.windowAt;
    if (tokens < least || ms < LEAST_MS) return;
    this.#context.observeTokenMs(ms / tokens);
    reply.windowTokens = reply.tokens;
    reply.windowAt = now;
  }

  #grown(reply: Progress, tokens: number): void {
    const more = tokens - reply.tokens;
    reply.tokens = tokens;
    this.#moved(more);
  }

  #moved(more: number): void {
    this.#context.completionTokens += more;
    this.#usage.countsGrew();
  }
}
