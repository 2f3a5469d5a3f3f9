/** Keys, the authorizer, the store of a fleet, prepaid credit. */
import { stateSamples, type Instruments } from './instruments.js';

/** An authorizer is asked before all other checks, within `authorizer.timeoutMs`. */
const ASK_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10] as const;

/** How a request's caller was resolved, as in access/authorizer.ts. */
const LOOKUPS = ['cached', 'joined', 'asked', 'left_alone'] as const;
export type LookupLabel = (typeof LOOKUPS)[number];

/** answered: caller or denial; invalid: outside its schema; overloaded: it sent 429 or 503; failed: no answer. */
const OUTCOMES = ['answered', 'invalid', 'overloaded', 'failed'] as const;
export type AskLabel = (typeof OUTCOMES)[number];

/** As in access/authorizer-client.ts. */
const BREAKER_STATES = ['closed', 'open', 'half-open'] as const;
export type BreakerLabel = (typeof BREAKER_STATES)[number];

/** Why credit refused, as in access/credit.ts. */
const CREDIT_REASONS = ['insufficient', 'unavailable'] as const;
export type CreditLabel = (typeof CREDIT_REASONS)[number];
export type CreditMetrics = ReturnType<typeof creditMetrics>;

/** Declares the metrics of the keys file. */
export function keysMetrics(instruments: Instruments) {
  const failures = instruments.counter('ra_sidecar_keys_reload_failures_total', 'reloads', {
    help: 'Reloads of the keys file that failed.',
    advice: 'A revoked key may still work.',
  });
  const valid = instruments.gauge('ra_sidecar_keys_file_valid', '0 or 1', {
    help: '0: the keys file is invalid or was removed.',
    advice: '0: the last valid keys stay in force; the log’s `keys file refused` has the error.',
  });
  valid.set(1);
  return {
    /** A changed keys file was invalid or missing; the previous keys stay in force. */
    refused(): void {
      failures.inc();
      valid.set(0);
    },
    /** Keys were loaded from the file, which is in force as it is. */
    loaded: (): void => valid.set(1),
  };
}

export function authorizerMetrics(instruments: Instruments) {
  const lookups = instruments.counter('ra_sidecar_authorizer_lookups_total', 'requests', {
    labels: { result: LOOKUPS },
    help: 'How callers were resolved.',
    advice: 'A low share of `cached`: raise `authorizer.cache.ttlMs` or `entries`.',
  });
  const stale = instruments.counter('ra_sidecar_authorizer_stale_total', 'requests', {
    help: 'Callers accepted from an expired cache entry.',
    advice:
      'The authorizer fails, or `authorizer.concurrency` lookups are in flight; after `authorizer.cache.staleMs` its callers are refused.',
  });
  const asks = instruments.histogram('ra_sidecar_authorizer_request_duration_seconds', 'seconds', {
    labels: { outcome: OUTCOMES },
    help: 'Time of a lookup at the authorizer.',
    advice:
      '`failed`, `invalid`: the log’s `authorizer is left alone` has the reason. `overloaded`: it sent 429 or 503.',
    buckets: ASK_SECONDS,
  });
  instruments.gauge('ra_sidecar_authorizer_breaker_state', '0 or 1', {
    labels: ['state'],
    help: '1 for the current state of the authorizer’s circuit breaker.',
    advice: '`open`: keys that are not cached get 503 until the authorizer answers again.',
    collect() {
      const now = authorizer.breakerState();
      return now && stateSamples(BREAKER_STATES, now);
    },
  });
  const authorizer = {
    /** Read at each scrape; undefined if there is no authorizer. */
    breakerState: (): BreakerLabel | undefined => undefined,
    /** Counts a request with a key. */
    lookedUp: (result: LookupLabel): void => lookups.inc({ result }),
    /** Counts a caller accepted from an expired cache entry. */
    stale: (): void => stale.inc(),
    /** A lookup has ended. */
    asked: (outcome: AskLabel, ms: number): void => asks.observe({ outcome }, ms / 1000),
  };
  return authorizer;
}

/** Places of a sidecar in its fleet. */
export const FLEET_STATES = ['joined', 'apart', 'fenced'] as const;
export type FleetState = (typeof FLEET_STATES)[number];

/** A round trip within the rack takes half a millisecond; `store.timeoutMs` is 250 ms. */
const STORE_SECONDS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1];

/** Declares the metrics of the store of a fleet. */
export function storeMetrics(instruments: Instruments) {
  const calls = instruments.histogram('ra_sidecar_store_call_duration_seconds', 'seconds', {
    labels: ['function', 'outcome'],
    help: 'Time of a call of the store, with the wait for a connection. `take` counts requests, `take_tokens` reserves tokens of quotas, `claim` an Idempotency-Key; `release`, `settle_tokens` and `finish` settle these; `draw` draws credit, `post` posts charges, `beat` renews the lease.',
    advice: '`failed`, or `take` and `claim` above some milliseconds: docs/incidents.md.',
    buckets: STORE_SECONDS,
  });
  instruments.gauge('ra_sidecar_store_state', '0 or 1', {
    labels: ['state'],
    help: '1 for the current state of this sidecar in its fleet.',
    advice:
      '`apart`: the store does not answer. `fenced`: another process has this one’s place (docs/store.md#sidecars-of-the-store).',
    collect() {
      const now = store.fleet();
      return now && stateSamples(FLEET_STATES, now.state);
    },
  });
  instruments.gauge('ra_sidecar_store_replicas', 'replicas', {
    help: 'Sidecars that the store counts, as of its last answer.',
    advice: 'Not what is deployed: a sidecar does not reach the store, or has another `store.url`.',
    collect: () => store.fleet()?.replicas,
  });
  instruments.gauge('ra_sidecar_store_held', 'requests', {
    labels: ['what'],
    help: 'Requests of this sidecar for which the store holds a place, tokens of a quota or an Idempotency-Key.',
    advice: 'More than run or have just ended: the store does not answer.',
    collect() {
      const now = store.fleet();
      if (now === undefined) return undefined;
      return [
        [{ what: 'places' }, now.places],
        [{ what: 'keys' }, now.keys],
        [{ what: 'tokens' }, now.tokens],
      ];
    },
  });
  const store = {
    /** Read at each scrape; undefined if there is no store. */
    fleet: (): FleetReading | undefined => undefined,
    /** A call has ended. */
    called: (fn: string, answered: boolean, ms: number): void =>
      calls.observe({ function: fn, outcome: answered ? 'answered' : 'failed' }, ms / 1000),
  };
  return store;
}

export interface FleetReading {
  readonly state: FleetState;
  readonly replicas: number | undefined;
  readonly places: number;
  readonly keys: number;
  readonly tokens: number;
}

export type StoreMetrics = ReturnType<typeof storeMetrics>;

/** Declares the metrics of prepaid credit. Amounts are not exported, since Prometheus values are floating-point. */
export function creditMetrics(instruments: Instruments) {
  const refusals = instruments.counter('ra_sidecar_credit_refusals_total', 'requests', {
    labels: { reason: CREDIT_REASONS },
    help: 'Requests refused by this sidecar’s own balances, not by an authorizer’s 402.',
    advice: '`unavailable`: balances are still being summed up.',
  });
  const recalls = instruments.counter('ra_sidecar_credit_recalls_total', 'recalls', {
    help: 'Waits of this sidecar for others to return credit that they do not use.',
    advice: 'Many: accounts are nearly used up.',
  });
  const uncovered = instruments.counter('ra_sidecar_credit_uncovered_total', 'posts', {
    help: 'Posts of charges that exceeded what the store held for them.',
    advice: 'Above 0: docs/incidents.md#credit-in-the-store.',
  });
  instruments.gauge('ra_sidecar_credit_escrow_accounts', 'accounts', {
    help: 'Accounts of which this sidecar holds credit.',
    advice: 'Above 0 for seconds without requests: the store does not answer.',
    collect: () => credit.fleet()?.accounts,
  });
  instruments.gauge('ra_sidecar_credit_posting_lag_seconds', 'seconds', {
    help: 'For how long charges have waited to be posted to the store.',
    advice: 'Above some seconds: the store does not answer. What waits stays held, so no account overspends.',
    collect() {
      const fleet = credit.fleet();
      return fleet && fleet.lagMs / 1000;
    },
  });
  instruments.gauge('ra_sidecar_credit_reservations', 'requests', {
    help: 'Requests with reserved credit.',
    advice: 'More than wait and run: report it.',
    collect: () => credit.reservations(),
  });
  const credit = {
    /** Read at each scrape. */
    reservations: (): number => 0,
    /** Read at each scrape; undefined unless credit is in the store of a fleet. `lagMs`: how long charges have waited to be posted. */
    fleet: (): { readonly accounts: number; readonly lagMs: number } | undefined => undefined,
    recalled: (): void => recalls.inc(),
    uncovered: (): void => uncovered.inc(),
    /** `insufficient`: the balance is too small; `unavailable`: it is not known yet. */
    refused: (reason: CreditLabel): void => refusals.inc({ reason }),
  };
  return credit;
}
