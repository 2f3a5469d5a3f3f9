/** Metrics of the engine processes of each model, one by one. */
import {
  REPLICA_BUSY,
  REPLICA_RESTARTS,
  REPLICA_SEATS,
  REPLICA_STATE,
  REPLICA_TOKEN_TIME,
} from './definitions/processes.js';
import { ENGINE_STATES, type EngineStateLabel } from './engine-metrics.js';
import type { Counter, Gauge, Instruments } from './instruments.js';

/** One replica at a scrape. */
export interface ReplicaReading {
  readonly state: EngineStateLabel;
  /** Seats that the queue may give; 0 while it is not ready. */
  readonly seats: number;
  /** Seats that requests hold. */
  readonly busy: number;
  /** As the queue's (`Replica`). */
  readonly tokenTimeRatio: number | undefined;
}

export class ReplicaMetrics {
  readonly #models = new Map<string, () => readonly ReplicaReading[]>();
  readonly #state: Gauge<'model' | 'replica' | 'state'>;
  readonly #seats: Gauge<'model' | 'replica'>;
  readonly #busy: Gauge<'model' | 'replica'>;
  readonly #tokenTimeRatio: Gauge<'model' | 'replica'>;
  readonly #restarts: Counter<'model' | 'replica'>;

  constructor(instruments: Instruments) {
    this.#state = instruments.gauge(REPLICA_STATE);
    this.#seats = instruments.gauge(REPLICA_SEATS);
    this.#busy = instruments.gauge(REPLICA_BUSY);
    this.#tokenTimeRatio = instruments.gauge(REPLICA_TOKEN_TIME);
    this.#restarts = instruments.counter(REPLICA_RESTARTS);
  }

  restarted(model: string, replica: number): void {
    this.#restarts.inc({ model, replica: String(replica) });
  }

  /** `read` is called at each scrape, for as long as this object lives. */
  watch(model: string, read: () => readonly ReplicaReading[]): void {
    this.#models.set(model, read);
  }

  /** Updates the gauges. */
  read(): void {
    for (const [model, read] of this.#models) {
      read().forEach(({ state: now, seats, busy, tokenTimeRatio }, index) => {
        const replica = String(index);
        for (const state of ENGINE_STATES) this.#state.set({ model, replica, state }, state === now ? 1 : 0);
        this.#seats.set({ model, replica }, seats);
        this.#busy.set({ model, replica }, busy);
        if (tokenTimeRatio !== undefined) this.#tokenTimeRatio.set({ model, replica }, tokenTimeRatio);
        this.#restarts.inc({ model, replica }, 0);
      });
    }
  }
}
