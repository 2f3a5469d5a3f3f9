/** The load of the whole process for load balancers, as metrics or load reports. */
import {
  ENDPOINT_CACHE,
  ENDPOINT_KV_USAGE,
  ENDPOINT_RUNNING,
  ENDPOINT_SEAT_USAGE,
  ENDPOINT_WAITING,
} from './definitions/endpoint.js';
import type { Gauge, Instruments } from './instruments.js';

/** The load of one model. Its properties are getters, so that reading allocates nothing. */
export interface ModelLoad {
  readonly seats: number;
  readonly busy: number;
  readonly waiting: number;
  /** Tokens of running requests, and the capacity, of ready replicas; 0 while none is. */
  readonly heldTokens: number;
  readonly capacityTokens: number;
  /** Size in tokens of the chunks in which prompts' state is reused; the same for all models. */
  readonly blockTokens: number;
}

/** The process at one moment. */
export interface EndpointLoad {
  readonly seats: number;
  readonly running: number;
  readonly waiting: number;
  /** Both from 0 to 1. */
  readonly kvUsage: number;
  readonly seatUsage: number;
  readonly capacityTokens: number;
}

export class EndpointMetrics {
  readonly #models: ModelLoad[] = [];
  readonly #waiting: Gauge;
  readonly #running: Gauge;
  readonly #kvUsage: Gauge;
  readonly #seatUsage: Gauge;
  readonly #cache: Gauge<'block_size' | 'num_gpu_blocks'>;

  constructor(instruments: Instruments) {
    this.#waiting = instruments.gauge(ENDPOINT_WAITING);
    this.#running = instruments.gauge(ENDPOINT_RUNNING);
    this.#kvUsage = instruments.gauge(ENDPOINT_KV_USAGE);
    this.#seatUsage = instruments.gauge(ENDPOINT_SEAT_USAGE);
    this.#cache = instruments.gauge(ENDPOINT_CACHE);
  }

  /** `load` is read for as long as this object lives. */
  watch(load: ModelLoad): void {
    this.#models.push(load);
  }

  /** The sum over all models, as one object. */
  now(): EndpointLoad {
    let seats = 0;
    let running = 0;
    let waiting = 0;
    let heldTokens = 0;
    let capacityTokens = 0;
    for (const model of this.#models) {
      seats += model.seats;
      running += model.busy;
      waiting += model.waiting;
      heldTokens += model.heldTokens;
      capacityTokens += model.capacityTokens;
    }
    return {
      seats,
      running,
      waiting,
      kvUsage: share(heldTokens, capacityTokens),
      seatUsage: share(running, seats),
      capacityTokens,
    };
  }

  /** Updates the gauges. */
  read(): void {
    const { running, waiting, kvUsage, seatUsage, capacityTokens } = this.now();
    this.#waiting.set(waiting);
    this.#running.set(running);
    this.#kvUsage.set(kvUsage);
    this.#seatUsage.set(seatUsage);
    this.#cache.reset();
    const [model] = this.#models;
    if (model === undefined) return;
    const blocks = Math.floor(capacityTokens / model.blockTokens);
    this.#cache.set({ block_size: String(model.blockTokens), num_gpu_blocks: String(blocks) }, 1);
  }
}

/** The quotient, limited to 0 to 1, since a part may be counted a moment before the whole; 0 if the whole is 0. */
function share(part: number, whole: number): number {
  return whole > 0 ? Math.min(1, part / whole) : 0;
}
