import { createHash } from 'node:crypto';
import type { CacheScope } from '../protocol/cache-key.js';
import type { Clock } from '../protocol/clock.js';
import { REQUEST_AHEAD_TOKENS, type GenerateJob } from '../protocol/jobs.js';

/**
 * Tokens of background replies that were stopped because their seat was needed (sidecar/admission/lent.ts). When the same job is sent again to
 * this process, its reply goes on after them: they are evaluated like a prompt, which takes much less time than to choose them.
 */
export class StoppedReplies {
  readonly #most: number;
  readonly #clock: Clock;
  /** By the names of their jobs, the oldest first. */
  readonly #replies = new Map<
    string,
    { readonly scope: CacheScope; readonly tokens: Uint32Array; readonly at: number }
  >();

  /** `most`: replies that are kept; the oldest go first. */
  constructor(most: number, clock: Clock) {
    this.#most = most;
    this.#clock = clock;
  }

  /** Keeps a copy of the tokens that a job's reply has, if it can go on after them. */
  keep(job: GenerateJob, tokens: ArrayLike<number>): void {
    const name = job.background === true && tokens.length > 0 ? nameOf(job) : undefined;
    if (name === undefined) return;
    this.#take(name);
    this.#replies.set(name, { scope: job.scope, tokens: Uint32Array.from(tokens), at: this.#clock.now() });
    const [oldest] = this.#replies.keys();
    if (this.#replies.size > this.#most) this.#take(oldest);
  }

  /** The tokens that a job's reply goes on after: the caller's from now on. No more than it may have before it asks for more. */
  take(job: GenerateJob): Uint32Array {
    const most = job.limit === undefined ? job.maxTokens : Math.max(0, job.limit - REQUEST_AHEAD_TOKENS - 1);
    return this.#take(this.#replies.size > 0 ? nameOf(job) : undefined, most);
  }

  /** Drops those that were stopped before `before` or are of one of these scopes. */
  tidy(before: number, scopes: ReadonlySet<CacheScope>): void {
    for (const [name, { scope, at }] of this.#replies) if (at < before || scopes.has(scope)) this.#take(name);
  }

  /** Its first tokens; the others are overwritten. */
  #take(name = '', most = 0): Uint32Array {
    const { tokens = new Uint32Array(0) } = this.#replies.get(name) ?? {};
    this.#replies.delete(name);
    return tokens.fill(0, most).subarray(0, most);
  }
}

/**
 * A digest by which a job is known when it is sent again. Undefined if its reply then begins again: the caller fixed its random numbers, its
 * sampler has state besides the tokens (penalties, calls, bounds of thoughts), it has several replies or images, or it never ran on a lent seat.
 */
function nameOf(job: GenerateJob): string | undefined {
  const { background, scope, prompt, n, maxTokens, temperature, topP, topK, minP, seed, mayVary, stops, format } = job;
  const isPenalized = job.frequencyPenalty !== 0 || job.presencePenalty !== 0;
  const isFixed = temperature > 0 && mayVary !== true;
  if (background === undefined || n > 1 || isPenalized || isFixed || format?.calls || format?.thoughtLimit)
    return undefined;
  if (prompt.some(({ kind }) => kind === 'image')) return undefined;
  const params = [scope, maxTokens, temperature, topP, topK, minP, seed, stops, format];
  const digest = createHash('sha256').update(JSON.stringify(params));
  for (const { tokens } of prompt) digest.update(tokens);
  return digest.digest('base64');
}
