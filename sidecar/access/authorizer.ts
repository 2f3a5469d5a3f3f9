/**
 * Authenticates callers by an HTTP service of the operator (docs/authorizer.md). At most one lookup per key is in flight, answers are
 * cached for a short time, and no lookups are made while the service fails; cached callers are then accepted for a bounded time.
 */
import { createHmac, randomBytes } from 'node:crypto';
import type { Clock } from '../lib/clock.js';
import { setNewest } from '../lib/id-map.js';
import { CATALOGUE, DENIALS, WAIT_STATUSES } from '../domain/errors.js';
import {
  Breaker,
  type AllowedCall,
  type AuthorizerClient,
  type BreakerOptions,
  type BreakerState,
} from './authorizer-client.js';
import {
  bearerOf,
  type Caller,
  type Credentials,
  type Denied,
  type Identity,
  type TraceHeaders,
  MAX_MODELS,
  MODEL_ID,
  NAME,
} from './identity.js';
import { closed } from '../contracts/common-schema.js';
import { compile, type ValueOf } from '../contracts/validator.js';
import { KEY_ROUTES } from '../contracts/requests.js';
import { CLASS_WEIGHTS, SERVICE_CLASSES, SERVICE_TIERS } from '../domain/service-class.js';
import { callerWith, hashKey, limitsSchema, tokenLimitFields } from './key-file.js';

/** Signed tokens are longer than keys; all headers of a request have 4 KiB together. */
const MAX_CREDENTIAL = 3072;

/** After a failed lookup its key is not looked up for this long, ms; the breaker counts consecutive failures of one key as one. */
const AGAIN_MS = 1000;

/** Callbacks for the metrics. */
export interface AuthorizerEvents {
  /**
   * A request with a key. cached: the answer was known; joined: it waits for another request's lookup; asked: it causes a lookup;
   * left_alone: no lookup, since the authorizer fails or too many lookups are in flight.
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
  readonly concurrency: number;
  readonly cache: CacheOptions;
  readonly breaker: BreakerOptions;
  readonly events?: AuthorizerEvents;
}

/** Uses an {@link AuthorizerClient}. Never rejects: failures become `gateway_unavailable` or `control_plane_overloaded`. */
export class AuthorizerIdentity implements Identity {
  readonly #clock: Clock;
  readonly #options: AuthorizerOptions;
  readonly #cache: AnswerCache;
  readonly #breaker: Breaker;
  /** Lookups in flight; further requests with the same key wait for the same answer. */
  readonly #asking = new Map<string, Promise<Caller | Denied>>();
  /** The cache is indexed by an HMAC with this random key: no API key is stored, and guesses cannot be tested on the index. */
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
    const call = this.#breaker.enter();
    if (call.kind === 'blocked') {
      const { why, retryAfterMs } = call;
      return this.#leftAlone(index, why === 'failing' ? unavailable(retryAfterMs) : overloaded(retryAfterMs));
    }
    this.#options.events?.lookedUp('asked');
    const asking = this.#ask(index, key, call, trace).finally(() => this.#asking.delete(index));
    this.#asking.set(index, asking);
    return asking;
  }

  async #ask(index: string, key: string, call: AllowedCall, trace: TraceHeaders | undefined) {
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
      call.overloaded(reply.retryAfterMs);
      return this.#without(index, 0, overloaded(reply.retryAfterMs));
    }
    const parsed = reply.kind === 'json' ? parseAnswer(reply.value, environment) : undefined;
    if (parsed) {
      report('answered');
      call.succeeded();
      const before = this.#cache.last(index);
      const answer = parsed.kind === 'denied' ? named(this.#timed(parsed), before) : parsed;
      this.#cache.keep(index, answer);
      const isFrozen = answer.kind === 'denied' && answer.code === 'account_frozen';
      if (isFrozen && before?.kind === 'caller') events?.frozen(before.account);
      return answer;
    }
    report(reply.kind === 'failed' ? 'failed' : 'invalid');
    call.failed(reply.kind === 'failed' ? reply.why : 'answer outside its schema', index);
    return this.#without(index, AGAIN_MS, unavailable(Math.max(AGAIN_MS, this.#breaker.blockedForMs)));
  }

  /** A denial that needs a wait but names none is cached for a fixed time, which is then the wait. */
  #timed(answer: Denied): Denied {
    if (!WAIT_STATUSES.has(CATALOGUE[answer.code].status)) return answer;
    return { retryAfterMs: Math.max(AGAIN_MS, this.#options.cache.deniedTtlMs), ...answer };
  }

  #leftAlone(index: string, denial: Denied): Caller | Denied {
    this.#options.events?.lookedUp('left_alone');
    return this.#without(index, 0, denial);
  }

  /** The cached caller, or `denial`, which is then the answer for this key for `holdMs`. */
  #without(index: string, holdMs: number, denial: Denied): Caller | Denied {
    const before = this.#cache.last(index);
    const known = this.#cache.stale(index, holdMs);
    if (known) {
      this.#options.events?.stale();
      return known;
    }
    const answer = named(denial, before);
    if (holdMs > 0) this.#cache.keep(index, answer, holdMs);
    return answer;
  }
}

/** The denial with its own names, or with those of the last answer for the same key. */
function named(denial: Denied, last: Caller | Denied | undefined): Denied {
  const known = last?.kind === 'caller' ? { account: last.account, keyId: last.keyId } : last?.known;
  return { ...(known && { known }), ...denial };
}

function unavailable(retryAfterMs: number): Denied {
  return { kind: 'denied', code: 'gateway_unavailable', retryAfterMs };
}

function overloaded(retryAfterMs: number): Denied {
  return { kind: 'denied', code: 'control_plane_overloaded', retryAfterMs };
}

/** The longest wait in a denial, ms: a day, after which any quota is renewed. */
const MAX_RETRY_MS = 86_400_000;

const name = { type: 'string', pattern: NAME } as const;

const caller = closed(['account', 'keyId', 'models'], {
  account: name,
  keyId: name,
  models: {
    anyOf: [{ const: 'all' }, { type: 'array', maxItems: MAX_MODELS, items: { type: 'string', pattern: MODEL_ID } }],
  },
  routes: { type: 'array', maxItems: KEY_ROUTES.length, items: { enum: KEY_ROUTES } },
  class: { enum: SERVICE_CLASSES },
  limits: limitsSchema,
  cohort: name,
  ...tokenLimitFields,
  accountTokens: closed([], tokenLimitFields),
  usage: { const: 'account' },
  tiers: { type: 'array', maxItems: SERVICE_TIERS.length, items: { enum: SERVICE_TIERS } },
});

const denied = closed(['code'], {
  code: { enum: DENIALS },
  retryAfterMs: { type: 'integer', minimum: 1, maximum: MAX_RETRY_MS },
  account: name,
  keyId: name,
});

/** Closed, so that no restriction is overlooked. */
const answer = { ...closed([], { caller, denied }), minProperties: 1, maxProperties: 1 } as const;

const check = compile<ValueOf<typeof answer>>(answer, { written: 'authorizer-answer' });

/** The caller or the denial of an answer (docs/authorizer.md); undefined if `value` is none. `environment`: the requested one. */
export function parseAnswer(value: unknown, environment: string): Caller | Denied | undefined {
  const checked = check(value);
  if (!checked.ok) return undefined;
  const { caller: found, denied: denial } = checked.value;
  if (denial) {
    const { account, keyId, ...said } = denial;
    const isNamed = account !== undefined || keyId !== undefined;
    return { kind: 'denied', ...said, ...(isNamed && { known: { account, keyId } }) };
  }
  if (!found) return undefined;
  const { account, keyId, limits, accountTokens, class: of = 'standard', ...rights } = found;
  return callerWith(rights, {
    account,
    keyId,
    environment,
    ...(limits && { limits }),
    ...(accountTokens && { accountTokens }),
    weight: CLASS_WEIGHTS[of],
  });
}

export interface CacheOptions {
  /** Callers, and as many denials. */
  readonly entries: number;
  /** Times in ms. */
  readonly ttlMs: number;
  readonly deniedTtlMs: number;
  /** How long past its time a caller is still returned by `stale`. */
  readonly staleMs: number;
}

interface Kept<T> {
  readonly answer: T;
  /** Clock readings. */
  readonly at: number;
  readonly freshUntil: number;
  readonly staleUntil: number;
}

/**
 * Answers by an index of the credential, which the caller computes; no key is stored here. Callers and denials are kept
 * separately, each with its own bound, so that a flood of invalid keys cannot evict callers. Callers can be used beyond their
 * time while the authorizer fails, within a bound; denials cannot.
 */
export class AnswerCache {
  readonly #clock: Clock;
  readonly #options: CacheOptions;
  /** In the order of their last use: the first is evicted next. */
  readonly #callers = new Map<string, Kept<Caller>>();
  readonly #denials = new Map<string, Kept<Denied>>();

  constructor(clock: Clock, options: CacheOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  /** Number of entries, expired ones included. */
  get size(): number {
    return this.#callers.size + this.#denials.size;
  }

  /** The answer if it is still valid. A `Retry-After` in it is reduced by the elapsed time. */
  fresh(index: string): Caller | Denied | undefined {
    const now = this.#clock.now();
    const caller = this.#callers.get(index);
    if (caller && now < caller.freshUntil) {
      setNewest(this.#callers, index, caller, this.#options.entries);
      return caller.answer;
    }
    const denial = this.#denials.get(index);
    if (!denial || now >= denial.freshUntil) return undefined;
    setNewest(this.#denials, index, denial, this.#options.entries);
    const { retryAfterMs, ...said } = denial.answer;
    return retryAfterMs === undefined ? said : { ...said, retryAfterMs: Math.ceil(retryAfterMs - (now - denial.at)) };
  }

  /**
   * The last known caller, for use while the authorizer fails. It counts as fresh for `holdMs`, so that its next request causes no lookup
   * at once, but never beyond the bound.
   */
  stale(index: string, holdMs: number): Caller | undefined {
    const kept = this.#callers.get(index);
    if (!kept) return undefined;
    const now = this.#clock.now();
    if (now >= kept.staleUntil) {
      this.#callers.delete(index);
      return undefined;
    }
    const held = { ...kept, freshUntil: Math.min(now + holdMs, kept.staleUntil) };
    setNewest(this.#callers, index, held, this.#options.entries);
    return kept.answer;
  }

  /** The last answer, however long ago that was; undefined if none is kept. */
  last(index: string): Caller | Denied | undefined {
    return (this.#callers.get(index) ?? this.#denials.get(index))?.answer;
  }

  /** Stores an answer in place of the previous one, a denial for at most `atMostMs`. It expires no later than a wait that it names. */
  keep(index: string, answer: Caller | Denied, atMostMs = Infinity): void {
    const { entries, ttlMs, deniedTtlMs, staleMs } = this.#options;
    this.#callers.delete(index);
    this.#denials.delete(index);
    const at = this.#clock.now();
    if (answer.kind === 'caller') {
      const kept = { answer, at, freshUntil: at + ttlMs, staleUntil: at + ttlMs + staleMs };
      setNewest(this.#callers, index, kept, entries);
    } else {
      const forMs = Math.min(deniedTtlMs, atMostMs, answer.retryAfterMs ?? Infinity);
      const until = at + forMs;
      if (forMs > 0) setNewest(this.#denials, index, { answer, at, freshUntil: until, staleUntil: until }, entries);
    }
  }
}
