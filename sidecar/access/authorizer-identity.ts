/**
 * Authenticates callers by an HTTP service of the operator (docs/authorizer.md). At most one lookup per key is in
 * flight, answers are cached for a short time, and no lookups are made while the service fails; cached callers are then
 * accepted for a bounded time.
 */
import { createHmac, randomBytes } from 'node:crypto';
import type { Clock } from '../lib/clock.js';
import { CATALOGUE, WAIT_STATUSES } from '../domain/errors.js';
import { AnswerCache, type CacheOptions } from './answer-cache.js';
import { parseAnswer } from './authorizer-answer.js';
import type { AuthorizerClient } from './authorizer-client.js';
import { bearerOf } from './bearer.js';
import { Breaker, type BreakerOptions, type BreakerState } from './breaker.js';
import type { Caller, Credentials, Denied, Identity, TraceHeaders } from './identity.js';
import { hashKey } from './key-index.js';

/** Signed tokens are longer than keys; all headers of a request have 4 KiB together. */
const MAX_CREDENTIAL = 3072;

/**
 * After a failed lookup its key is not looked up for this long, ms; the breaker counts consecutive failures of one key
 * as one.
 */
const AGAIN_MS = 1000;

/** Callbacks for the metrics. */
export interface AuthorizerEvents {
  /**
   * A request with a key. cached: the answer was known; joined: it waits for another request's lookup; asked: it causes
   * a lookup; left_alone: no lookup, since the authorizer fails or too many lookups are in flight.
   */
  lookedUp(result: 'cached' | 'joined' | 'asked' | 'left_alone'): void;
  /** A caller was accepted from an expired cache entry. */
  stale(): void;
  /** An account whose caller was known is frozen now. */
  frozen(account: string): void;
  /** A lookup has ended. invalid: an answer outside its schema. */
  asked(outcome: 'answered' | 'invalid' | 'overloaded' | 'failed', ms: number): void;
}

export interface AuthorizerOptions {
  readonly client: Pick<AuthorizerClient, 'ask'>;
  /** Sent in lookups; the environment of all callers. */
  readonly environment: string;
  /** What is sent: the key's SHA-256, hex, or the key. */
  readonly send: 'hash' | 'key';
  /** Lookups at once. */
  readonly concurrency: number;
  readonly cache: CacheOptions;
  readonly breaker: BreakerOptions;
  readonly events?: AuthorizerEvents;
}

/**
 * Uses an {@link AuthorizerClient}. Never rejects: failures become `gateway_unavailable` or `control_plane_overloaded`.
 */
export class AuthorizerIdentity implements Identity {
  readonly #clock: Clock;
  readonly #options: AuthorizerOptions;
  readonly #cache: AnswerCache;
  readonly #breaker: Breaker;
  /** Lookups in flight; further requests with the same key wait for the same answer. */
  readonly #asking = new Map<string, Promise<Caller | Denied>>();
  /**
   * The cache is indexed by an HMAC with this random key: no API key is stored, and guesses cannot be tested on the
   * index.
   */
  readonly #secret = randomBytes(32);

  constructor(clock: Clock, options: AuthorizerOptions) {
    this.#clock = clock;
    this.#options = options;
    this.#cache = new AnswerCache(clock, options.cache);
    this.#breaker = new Breaker(clock, options.breaker);
  }

  get breakerState(): BreakerState {
    return this.#breaker.state;
  }

  async resolve(credentials: Credentials, trace?: TraceHeaders): Promise<Caller | Denied> {
    const key = bearerOf(credentials, MAX_CREDENTIAL);
    if (key === undefined) return { kind: 'denied', code: 'invalid_api_key' };
    const index = createHmac('sha256', this.#secret).update(key).digest('base64');
    const { events } = this.#options;
    const known = this.#cache.fresh(index);
    const asking = known ?? this.#asking.get(index);
    if (asking === undefined) return this.#mayAsk(index, key, trace);
    events?.lookedUp(known ? 'cached' : 'joined');
    return asking;
  }

  #mayAsk(index: string, key: string, trace: TraceHeaders | undefined): Caller | Denied | Promise<Caller | Denied> {
    // Neither is cached as a failure, so a known caller's next request may cause a lookup.
    if (this.#asking.size >= this.#options.concurrency) return this.#leftAlone(index, overloaded(AGAIN_MS));
    const permit = this.#breaker.enter();
    if ('kind' in permit) {
      const { why, retryAfterMs } = permit;
      return this.#leftAlone(index, why === 'failing' ? unavailable(retryAfterMs) : overloaded(retryAfterMs));
    }
    this.#options.events?.lookedUp('asked');
    const asking = this.#ask(index, key, permit, trace).finally(() => this.#asking.delete(index));
    this.#asking.set(index, asking);
    return asking;
  }

  async #ask(
    index: string,
    key: string,
    permit: Exclude<ReturnType<Breaker['enter']>, { kind: 'blocked' }>,
    trace: TraceHeaders | undefined,
  ) {
    const { client, environment, send, events } = this.#options;
    const from = this.#clock.now();
    const report = (outcome: Parameters<AuthorizerEvents['asked']>[0]): void =>
      events?.asked(outcome, this.#clock.now() - from);
    const reply = await client.ask(
      { ...(send === 'key' ? { key } : { keyHash: hashKey(key) }), environment },
      trace?.(),
    );
    if (reply.kind === 'overloaded') {
      report('overloaded');
      permit.overloaded(reply.retryAfterMs);
      return this.#without(index, 0, overloaded(reply.retryAfterMs));
    }
    const answer = reply.kind === 'json' ? this.#timed(parseAnswer(reply.value, environment)) : undefined;
    if (answer) {
      report('answered');
      permit.succeeded();
      const known =
        answer.kind === 'denied' && answer.code === 'account_frozen' ? this.#cache.account(index) : undefined;
      this.#cache.keep(index, answer);
      if (known !== undefined) events?.frozen(known);
      return answer;
    }
    report(reply.kind === 'failed' ? 'failed' : 'invalid');
    permit.failed(reply.kind === 'failed' ? reply.why : 'answer outside its schema', index);
    return this.#without(index, AGAIN_MS, unavailable(Math.max(AGAIN_MS, this.#breaker.blockedForMs)));
  }

  /** A denial that needs a wait but names none is cached for a fixed time, which is then the wait. */
  #timed(answer: Caller | Denied | undefined): Caller | Denied | undefined {
    if (answer?.kind !== 'denied' || !WAIT_STATUSES.has(CATALOGUE[answer.code].status)) return answer;
    return { retryAfterMs: Math.max(AGAIN_MS, this.#options.cache.deniedTtlMs), ...answer };
  }

  #leftAlone(index: string, denial: Denied): Caller | Denied {
    this.#options.events?.lookedUp('left_alone');
    return this.#without(index, 0, denial);
  }

  /** The cached caller, or `denial`, which is then the answer for this key for `holdMs`. */
  #without(index: string, holdMs: number, denial: Denied): Caller | Denied {
    const known = this.#cache.stale(index, holdMs);
    if (known) this.#options.events?.stale();
    if (!known && holdMs > 0) this.#cache.keep(index, denial, holdMs);
    return known ?? denial;
  }
}

function unavailable(retryAfterMs: number): Denied {
  return { kind: 'denied', code: 'gateway_unavailable', retryAfterMs };
}

function overloaded(retryAfterMs: number): Denied {
  return { kind: 'denied', code: 'control_plane_overloaded', retryAfterMs };
}
