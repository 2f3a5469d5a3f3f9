import type { CacheScope } from '../protocol/cache-key.js';
import type { Clock } from '../protocol/clock.js';

/** States that are saved before any came back, of all scopes together. */
const FIRST_SAVES = 128;

/** A restore pays for as many saves of its scope: where fewer come back, they are hardly worth their copies for a small model. */
const SAVES_A_RESTORE = 16;

/** The most that restores pay for ahead. */
const MOST_PAID = 128;

/**
 * Any other save is followed by a pause of so many times its length. The copy then takes a quarter of a percent of the time, and its
 * digest and its memory take about as much again.
 */
const PAUSE = 400;

/** Scopes whose restores are remembered, at most. */
const MOST_SCOPES = 4096;

/**
 * Decides whether states that are overwritten are saved, by how many of their scope's last ones came back. Where none does, a
 * model for which a copy costs much beside a prefill saves few, and one for which it costs little still saves most.
 */
export class SavePace {
  readonly #clock: Clock;
  #first = FIRST_SAVES;
  /** Saves that restores have paid for, by scope. */
  readonly #paid = new Map<CacheScope, number>();
  /** Clock reading. */
  #pauseEnds = -Infinity;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether a state of this scope is to be saved now. */
  allows(scope: CacheScope): boolean {
    return this.#first > 0 || this.#paid.has(scope) || this.#clock.now() >= this.#pauseEnds;
  }

  /** A save begins. The result is to be called at its end. */
  begin(scope: CacheScope): () => void {
    const from = this.#clock.now();
    const paid = this.#paid.get(scope);
    if (paid !== undefined) this.#pay(scope, paid - 1);
    else if (this.#first > 0) this.#first -= 1;
    else return () => (this.#pauseEnds = this.#clock.now() + PAUSE * (this.#clock.now() - from));
    return () => undefined;
  }

  restored(scope: CacheScope): void {
    this.#pay(scope, Math.min(MOST_PAID, (this.#paid.get(scope) ?? 0) + SAVES_A_RESTORE));
    const [oldest] = this.#paid.keys();
    if (this.#paid.size > MOST_SCOPES && oldest !== undefined) this.#paid.delete(oldest);
  }

  /** Moves it to the end, so that the first is the one not used for longest. */
  #pay(scope: CacheScope, saves: number): void {
    this.#paid.delete(scope);
    if (saves > 0) this.#paid.set(scope, saves);
  }
}
