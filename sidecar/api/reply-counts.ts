import type { Clock } from '../lib/clock.js';
import type { ModelMeter } from '../telemetry/model-metrics.js';
import type { UsageSession } from './usage-session.js';
import type { RequestContext } from './request-context.js';

/** One running reply. Times are clock readings. */
interface Progress {
  tokens: number;
  readonly firstTokens: number;
  readonly firstAt: number;
  lastAt: number;
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
      this.#replies.set(choice, { tokens, firstTokens: tokens, firstAt: now, lastAt: now });
      this.#moved(tokens);
      return;
    }
    this.#meter?.piece(now - reply.lastAt);
    reply.lastAt = now;
    this.#grown(reply, tokens);
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
    this.#context.replied(completionTokens - reply.firstTokens, this.#clock.now() - reply.firstAt);
    this.#grown(reply, completionTokens);
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
