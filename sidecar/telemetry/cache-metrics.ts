/** Metrics of the prefix caches in host memory. */
import { CACHE_BYTES, CACHE_EVICTIONS, CACHE_HITS, CACHE_TOKENS } from './definitions/prefix-cache.js';
import type { Counter, Gauge, Instruments } from './instruments.js';

/** Why an entry was dropped, as in engine/protocol/messages.ts. */
export const EVICTION_REASONS = ['room', 'replaced', 'age', 'forgotten', 'failed'] as const;
type Reason = (typeof EVICTION_REASONS)[number];

/** One engine process's cache at a scrape: sums since the process began, and its bytes now. */
export interface CacheReading {
  readonly hits: number;
  readonly restoredTokens: number;
  readonly bytes: number;
  readonly evictions: Readonly<Record<Reason, number>>;
}

/** The sums of one engine process at the last scrape. */
interface LastSums {
  readonly hits: number;
  readonly restoredTokens: number;
  readonly evictions: Readonly<Record<Reason, number>>;
}

const NOTHING: LastSums = {
  hits: 0,
  restoredTokens: 0,
  evictions: { room: 0, replaced: 0, age: 0, forgotten: 0, failed: 0 },
};

export class CacheMetrics {
  readonly #caches = new Map<string, () => readonly CacheReading[]>();
  readonly #seen = new Map<string, LastSums[]>();
  readonly #hits: Counter<'model'>;
  readonly #tokens: Counter<'model'>;
  readonly #bytes: Gauge<'model'>;
  readonly #evictions: Counter<'model' | 'reason'>;

  /** `models`: the configured ids. */
  constructor(instruments: Instruments, models: readonly string[]) {
    this.#hits = instruments.counter(CACHE_HITS);
    this.#tokens = instruments.counter(CACHE_TOKENS);
    this.#bytes = instruments.gauge(CACHE_BYTES);
    this.#evictions = instruments.counter(CACHE_EVICTIONS);
    for (const model of models) {
      this.#hits.inc({ model }, 0);
      this.#tokens.inc({ model }, 0);
      for (const reason of EVICTION_REASONS) this.#evictions.inc({ model, reason }, 0);
    }
  }

  /** `read` returns the counts of the model's processes, always in the same order; it is called at each scrape. */
  watch(model: string, read: () => readonly CacheReading[]): void {
    this.#caches.set(model, read);
  }

  /** Adds what has come since the last call. A process whose sums fell was started again. */
  read(): void {
    for (const [model, read] of this.#caches) {
      const readings = read();
      this.#bytes.set(
        { model },
        readings.reduce((sum, { bytes }) => sum + bytes, 0),
      );
      const seen = this.#seen.get(model) ?? [];
      readings.forEach((now, at) => this.#add(model, seen[at] ?? NOTHING, now));
      this.#seen.set(model, [...readings]);
    }
  }

  #add(model: string, seen: LastSums, now: CacheReading): void {
    this.#hits.inc({ model }, grown(seen.hits, now.hits));
    this.#tokens.inc({ model }, grown(seen.restoredTokens, now.restoredTokens));
    for (const reason of EVICTION_REASONS) {
      this.#evictions.inc({ model, reason }, grown(seen.evictions[reason], now.evictions[reason]));
    }
  }
}

function grown(seen: number, now: number): number {
  return now < seen ? now : now - seen;
}
