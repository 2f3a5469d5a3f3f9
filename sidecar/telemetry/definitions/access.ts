/** Keys, the authorizer, prepaid credit. */
import { PREFIX, type CounterDefinition, type GaugeDefinition, type HistogramDefinition } from '../instruments.js';

/** An authorizer is asked before all other checks, within `authorizer.timeoutMs`. */
const ASK_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10] as const;

export const KEYS_REFUSED: CounterDefinition = {
  name: `${PREFIX}keys_reload_failures_total`,
  type: 'counter',
  unit: 'reloads',
  labels: [],
  help: 'Reloads of the keys file that failed.',
  advice: 'The log has the error; the last valid keys stay in force, so a revoked key still works.',
};

export const KEYS_VALID: GaugeDefinition = {
  name: `${PREFIX}keys_file_valid`,
  type: 'gauge',
  unit: '0 or 1',
  labels: [],
  help: '0: the keys file is invalid or was removed, and the last valid keys are in force; 1: it is not, or none is configured.',
  advice: '0: a revoked key may still work. The log line `keys file refused` has the error.',
};

export const AUTHORIZER_LOOKUPS: CounterDefinition<'result'> = {
  name: `${PREFIX}authorizer_lookups_total`,
  type: 'counter',
  unit: 'requests',
  labels: ['result'],
  help: 'How callers were resolved: from the cache, by joining a lookup in flight, by a lookup, or refused without one.',
  advice:
    'A low share of `cached`: raise `authorizer.cache.ttlMs` or `entries`. `left_alone`: the authorizer is failing, or `authorizer.concurrency` lookups are in flight.',
};

export const AUTHORIZER_STALE: CounterDefinition = {
  name: `${PREFIX}authorizer_stale_total`,
  type: 'counter',
  unit: 'requests',
  labels: [],
  help: 'Callers accepted from an expired cache entry, because the authorizer failed or could not be asked.',
  advice:
    'The authorizer is failing, or `authorizer.concurrency` lookups are in flight; after `authorizer.cache.staleMs` its callers are refused.',
};

export const AUTHORIZER_DURATION: HistogramDefinition<'outcome'> = {
  name: `${PREFIX}authorizer_request_duration_seconds`,
  type: 'histogram',
  unit: 'seconds',
  labels: ['outcome'],
  help: 'Time of a lookup at the authorizer, from the request to the complete answer.',
  advice:
    '`failed`, `invalid`: the log line `authorizer is left alone` has the reason. `overloaded`: it sent 429 or 503.',
  buckets: ASK_SECONDS,
};

export const AUTHORIZER_BREAKER: GaugeDefinition<'state'> = {
  name: `${PREFIX}authorizer_breaker_state`,
  type: 'gauge',
  unit: '0 or 1',
  labels: ['state'],
  help: 'State of the authorizer’s circuit breaker: 1 for the current state, 0 for the others; absent without an authorizer.',
  advice: '`open`: keys that are not in the cache are refused with 503 until the authorizer answers again.',
};

export const CREDIT_REFUSALS: CounterDefinition<'reason'> = {
  name: `${PREFIX}credit_refusals_total`,
  type: 'counter',
  unit: 'requests',
  labels: ['reason'],
  help: 'Requests refused by this sidecar’s own balances: for lack of credit, or because the balance was not known.',
  advice:
    '`unavailable`: balances are still being summed up after the start. `insufficient`: the account has too little. Refusals by an authorizer’s 402 are only in `http_server_request_duration_seconds`.',
};

export const CREDIT_RESERVATIONS: GaugeDefinition = {
  name: `${PREFIX}credit_reservations`,
  type: 'gauge',
  unit: 'requests',
  labels: [],
  help: 'Requests with reserved credit.',
  advice: 'At most the number of waiting and running requests; more is a fault: report it.',
};

export const ACCESS_METRICS = [
  KEYS_REFUSED,
  KEYS_VALID,
  AUTHORIZER_LOOKUPS,
  AUTHORIZER_STALE,
  AUTHORIZER_DURATION,
  AUTHORIZER_BREAKER,
  CREDIT_REFUSALS,
  CREDIT_RESERVATIONS,
] as const;
