/** Metrics of the engines and of the prompt host. */
import {
  ENGINE_RESTARTS,
  ENGINE_STATE,
  KV_CAPACITY,
  KV_TOKENS,
  PROMPT_RESTARTS,
  UNCONFIRMED_CANCELS,
} from './definitions/processes.js';
import type { Counter, Gauge, Instruments } from './instruments.js';

/** An engine's states, as in engine-client/engine.ts. */
export const ENGINE_STATES = ['unloaded', 'cold', 'ready', 'lost'] as const;
export type EngineStateLabel = (typeof ENGINE_STATES)[number];

/** The state of one engine at a scrape. */
export interface EngineReading {
  readonly state: EngineStateLabel;
  /** Tokens of running requests, and tokens kept for reuse. */
  readonly running: number;
  readonly kept: number;
  /** Its capacity in tokens. */
  readonly capacity: number;
}

export class EngineMetrics {
  readonly #engines = new Map<string, () => EngineReading>();
  readonly #restarts: Counter<'model'>;
  readonly #unconfirmed: Counter<'model'>;
  readonly #state: Gauge<'model' | 'state'>;
  readonly #tokens: Gauge<'model' | 'use'>;
  readonly #capacity: Gauge<'model'>;
  readonly #promptRestarts: Counter;

  /** `models`: the configured ids. */
  constructor(instruments: Instruments, models: readonly string[]) {
    this.#state = instruments.gauge(ENGINE_STATE);
    this.#restarts = instruments.counter(ENGINE_RESTARTS);
    this.#unconfirmed = instruments.counter(UNCONFIRMED_CANCELS);
    this.#tokens = instruments.gauge(KV_TOKENS);
    this.#capacity = instruments.gauge(KV_CAPACITY);
    this.#promptRestarts = instruments.counter(PROMPT_RESTARTS);
    for (const model of models) {
      this.#restarts.inc({ model }, 0);
      this.#unconfirmed.inc({ model }, 0);
    }
  }

  restarted(model: string): void {
    this.#restarts.inc({ model });
  }

  unconfirmed(model: string, count: number): void {
    this.#unconfirmed.inc({ model }, count);
  }

  promptHostRestarted(): void {
    this.#promptRestarts.inc();
  }

  /** `read` is called at each scrape, for as long as this object lives. */
  watch(model: string, read: () => EngineReading): void {
    this.#engines.set(model, read);
  }

  /** Updates the gauges. */
  read(): void {
    for (const [model, read] of this.#engines) {
      const { state: now, running, kept, capacity } = read();
      for (const state of ENGINE_STATES) this.#state.set({ model, state }, state === now ? 1 : 0);
      this.#tokens.set({ model, use: 'running' }, running);
      this.#tokens.set({ model, use: 'kept' }, kept);
      this.#capacity.set({ model }, capacity);
    }
  }
}
