import type { Clock } from '../protocol/clock.js';
import type { RemoteSetup } from '../protocol/setup.js';
import type { Flight } from './flight.js';

/** A request that was sent this long ago has reached the server, ms. */
const REACHED_MS = 250;

/** As in `RemoteSetup`. */
export type StallLimits = Pick<RemoteSetup, 'silentMs' | 'tokenMs'>;

interface Sent {
  readonly tokens: number;
  readonly sentAt: number;
  /** When the server had last computed more of it, and how long the next time may take, ms. */
  movedAt: number;
  limitMs: number;
  /** Fails its job. */
  readonly silent: () => void;
}

/** The requests that the server is to compute, with their tokens and when they were sent. At most as many as seats. */
export class InFlight {
  readonly #clock: Clock;
  readonly #limits: StallLimits;
  readonly #flights = new Map<Flight, Sent>();
  #tokens = 0;

  constructor(clock: Clock, limits: StallLimits) {
    this.#clock = clock;
    this.#limits = limits;
  }

  get size(): number {
    return this.#flights.size;
  }

  get tokens(): number {
    return this.#tokens;
  }

  /** Those that have reached the server. */
  get reached(): number {
    const now = this.#clock.now();
    let reached = 0;
    for (const flight of this.#flights.keys()) if (this.reachedAt(flight) <= now) reached += 1;
    return reached;
  }

  keys(): Iterable<Flight> {
    return this.#flights.keys();
  }

  /** `silent`: called when the server has not computed more of it for too long. */
  add(flight: Flight, tokens: number, silent: () => void): void {
    const now = this.#clock.now();
    this.#flights.set(flight, { tokens, sentAt: now, movedAt: now, limitMs: this.#limits.silentMs, silent });
    this.#tokens += tokens;
  }

  land(flight: Flight): void {
    this.#tokens -= this.#flights.get(flight)?.tokens ?? 0;
    this.#flights.delete(flight);
  }

  moved(flight: Flight, what: 'prompt' | 'token'): void {
    const sent = this.#flights.get(flight);
    if (!sent) return;
    sent.movedAt = this.#clock.now();
    if (what === 'token') sent.limitMs = this.#limits.tokenMs;
  }

  /** Clock reading from which on the server is known to have got it. */
  reachedAt(flight: Flight): number {
    return flight.begun ? 0 : (this.#flights.get(flight)?.sentAt ?? 0) + REACHED_MS;
  }

  /** Ends the requests of which the server has not computed more for too long. */
  endSilent(): void {
    const now = this.#clock.now();
    for (const { movedAt, limitMs, silent } of [...this.#flights.values()]) if (now - movedAt > limitMs) silent();
  }
}
