/** The requests to a server: those that it is to compute, and those whose connections were closed. */
import type { Clock } from '../protocol/clock.js';
import type { Output, ReplyLimit } from '../protocol/jobs.js';
import type { RemoteSetup } from '../protocol/setup.js';

/** One request to a server, for one item of a job: a reply or a question's answer. */
export interface Flight {
  /** The server's name for it. */
  readonly name: string;
  /** The server is known to have taken it. */
  readonly begun: boolean;
  /** As in {@link Reply} (scheduler/reply.ts). Absent: it is no reply. */
  limit?(limit: ReplyLimit): void;
  /** Closes its connection; no event follows. Idempotent. */
  close(): void;
}

/** Called in order. After one of the last five nothing is called. */
export interface FlightEvents {
  /** At most once. `cached`: absent, not known yet. */
  begun(cached: number | undefined): void;
  outputs(outputs: readonly Output[]): void;
  /** Known after `begun`. */
  cached(tokens: number): void;
  /** The server has computed more of it: of its prompt, or a token. Other bytes, such as comments, prove nothing. */
  moved(what: 'prompt' | 'token'): void;
  /** The item is complete, and the server has ended it too. */
  done(): void;
  /** The item is complete, and its connection is closed; the server may still compute it. */
  complete(): void;
  /** The server refuses further requests for now. */
  busy(): void;
  /** The connection ended too early: the server may have ended. */
  broken(): void;
  failed(why: string): void;
}

/** A request that was sent this long ago has reached the server, ms. */
const REACHED_MS = 250;

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

/** A request whose connection was closed, and which the server may continue computing. */
export interface Leaver {
  /** Tokens that it may take of the server's memory. */
  readonly tokens: number;
  /** Clock reading from which on the server is known to have got the request: until then it may still come to run it. */
  readonly reachedAt: number;
  /** The sidecar counts its seat as in use: its job has not ended, or was cancelled and is not confirmed. */
  leased(): boolean;
  /** The server no longer computes it, or did not confirm that in time. Called once. */
  gone(): void;
}

/**
 * The requests whose connections were closed: a closed connection does not prove that a server's sequence is free. They
 * are gone once the server runs no more requests than are still wanted, or is at rest. At most as many as seats.
 */
export class Leaving {
  readonly #clock: Clock;
  readonly #waitMs: number;
  readonly #leavers = new Map<Leaver, number>();
  #unconfirmed = 0;

  /** `waitMs`: a request that is unconfirmed for longer is given up, and counted. */
  constructor(clock: Clock, waitMs: number) {
    this.#clock = clock;
    this.#waitMs = waitMs;
  }

  get size(): number {
    return this.#leavers.size;
  }

  get tokens(): number {
    let tokens = 0;
    for (const leaver of this.#leavers.keys()) tokens += leaver.tokens;
    return tokens;
  }

  /** Those whose seats the sidecar counts as free. */
  get unleased(): number {
    return [...this.#leavers.keys()].filter((leaver) => !leaver.leased()).length;
  }

  /** Requests so far that were given up. */
  get unconfirmed(): number {
    return this.#unconfirmed;
  }

  add(leaver: Leaver): void {
    this.#leavers.set(leaver, this.#clock.now());
  }

  /**
   * The server computed or queued `running` requests at the clock reading `at` or later, of which at least `wanted` had
   * reached it and are still wanted. The oldest ones are gone first.
   */
  confirm(running: number, wanted: number, at: number): void {
    const reached = [...this.#leavers.keys()].filter(({ reachedAt }) => reachedAt <= at);
    const still = Math.max(0, running - wanted);
    for (const leaver of reached.slice(0, Math.max(0, reached.length - still))) this.#end(leaver);
  }

  /** The server computes nothing, whatever it counts: those that were closed before this clock reading are gone. */
  rested(before: number): void {
    this.#endBefore(before, () => undefined);
  }

  /** Gives up what has been awaited for too long. */
  expire(): void {
    this.#endBefore(this.#clock.now() - this.#waitMs, () => (this.#unconfirmed += 1));
  }

  #endBefore(before: number, each: () => void): void {
    for (const [leaver, since] of this.#leavers) {
      if (since > before) return;
      each();
      this.#end(leaver);
    }
  }

  #end(leaver: Leaver): void {
    this.#leavers.delete(leaver);
    leaver.gone();
  }
}
