/** Keys, the authorizer, prepaid credit. */
import { PREFIX, type CounterDefinition, type GaugeDefinition, type HistogramDefinition } from '../instruments.js';

/** An authorizer is asked before anything else is done, within `authorizer.timeoutMs`. */
const ASK_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10] as const;

export const KEYS_REFUSED: CounterDefinition = {
  name: `${PREFIX}keys_reload_failures_total`,
  type: 'counter',
  unit: 'reloads',
  labels: [],
  help: 'Keys files that could not be taken.',
  advice: 'The log says what is wrong with the file; the last good keys stay in force, so a revoked key still works.',
};

export const AUTHORIZER_LOOKUPS: CounterDefinition<'result'> = {
  name: `${PREFIX}authorizer_lookups_total`,
  type: 'counter',
  unit: 'requests',
  labels: ['result'],
  help: 'How requests’ callers were found: from the cache, by joining a question under way, by asking, or not asked at all.',
  advice:
    'A low share of `cached`: raise `authorizer.cache.ttlMs` or `entries`. `left_alone`: the authorizer is failing.',
};

export const AUTHORIZER_STALE: CounterDefinition = {
  name: `${PREFIX}authorizer_stale_total`,
  type: 'counter',
  unit: 'requests',
  labels: [],
  help: 'Callers let in on an answer past its time, because the authorizer could not answer.',
  advice: 'The authorizer is failing; past `authorizer.cache.staleMs` its callers are refused.',
};

export const AUTHORIZER_DURATION: HistogramDefinition<'outcome'> = {
  name: `${PREFIX}authorizer_request_duration_seconds`,
  type: 'histogram',
  unit: 'seconds',
  labels: ['outcome'],
  help: 'Questions to the authorizer, from the question to the whole answer.',
  advice:
    '`failed`, `invalid`: the log line `authorizer is left alone` says why. `overloaded`: it asked to be left alone.',
  buckets: ASK_SECONDS,
};

export const AUTHORIZER_BREAKER: GaugeDefinition<'state'> = {
  name: `${PREFIX}authorizer_breaker_state`,
  type: 'gauge',
  unit: '0 or 1',
  labels: ['state'],
  help: 'The breaker before the authorizer: 1 for one state, 0 for the others; absent where no authorizer is configured.',
  advice: '`open`: keys that are not in the cache are refused with 503 until the authorizer answers again.',
};

export const CREDIT_REFUSALS: CounterDefinition<'reason'> = {
  name: `${PREFIX}credit_refusals_total`,
  type: 'counter',
  unit: 'requests',
  labels: ['reason'],
  help: 'Requests refused for want of credit, or because it was not known.',
  advice:
    '`unavailable`: balances are still being added up, or the grants file is gone. `insufficient`: the account’s own.',
};

export const CREDIT_RESERVATIONS: GaugeDefinition = {
  name: `${PREFIX}credit_reservations`,
  type: 'gauge',
  unit: 'requests',
  labels: [],
  help: 'Requests that hold credit.',
  advice: 'Never more than requests that wait and run; more is a fault: report it.',
};

export const ACCESS_METRICS = [
  KEYS_REFUSED,
  AUTHORIZER_LOOKUPS,
  AUTHORIZER_STALE,
  AUTHORIZER_DURATION,
  AUTHORIZER_BREAKER,
  CREDIT_REFUSALS,
  CREDIT_RESERVATIONS,
] as const;
