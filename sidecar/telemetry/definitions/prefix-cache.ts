/** The prefix caches in host memory, as of the engines' last heartbeats. */
import { PREFIX, type CounterDefinition, type GaugeDefinition } from '../instruments.js';

export const CACHE_HITS: CounterDefinition<'model'> = {
  name: `${PREFIX}prefix_cache_hits_total`,
  type: 'counter',
  unit: 'requests',
  labels: ['model'],
  help: 'Requests that continued from a prefix that was restored from host memory.',
  advice:
    'Few, with many evictions for `room`: conversations continue later than their prefixes are kept; see `prefixCache.bytes`.',
};

export const CACHE_TOKENS: CounterDefinition<'model'> = {
  name: `${PREFIX}prefix_cache_restored_tokens_total`,
  type: 'counter',
  unit: 'tokens',
  labels: ['model'],
  help: 'Prompt tokens that were restored from host memory, a part of `ra_sidecar_cached_tokens_total`.',
  advice: 'What the cache saves: these tokens were not evaluated again.',
};

export const CACHE_BYTES: GaugeDefinition<'model'> = {
  name: `${PREFIX}prefix_cache_bytes`,
  type: 'gauge',
  unit: 'bytes',
  labels: ['model'],
  help: 'Host memory of saved prefixes, of all replicas. Each replica counts a prefix that it shares with others.',
  advice:
    'At `prefixCache.bytes` for each replica, prefixes make room for others; far below it, a smaller bound would do.',
};

export const CACHE_EVICTIONS: CounterDefinition<'model' | 'reason'> = {
  name: `${PREFIX}prefix_cache_evictions_total`,
  type: 'counter',
  unit: 'prefixes',
  labels: ['model', 'reason'],
  help: 'Saved prefixes that were dropped, by reason: `room` for others, `replaced` by one that contains them, `age`, `forgotten` with their account, `failed` to be restored.',
  advice:
    '`failed`: their prompts were evaluated instead. A restored state differed from the saved one: check the machine’s memory.',
};

export const PREFIX_CACHE_METRICS = [CACHE_HITS, CACHE_TOKENS, CACHE_BYTES, CACHE_EVICTIONS] as const;
