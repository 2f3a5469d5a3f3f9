import type { Clock } from '../protocol/clock.js';

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
