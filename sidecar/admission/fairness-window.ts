import type { Heap } from '../lib/heap.js';
import type { Account } from './account.js';

/** Long enough that the turns of a few seats even out. */
const WINDOW_MS = 60_000;

/**
 * How evenly seat time went to those who wanted more of it, window by window: Jain's index (R. Jain, D. Chiu, W. Hawe,
 * 1984) of seat-milliseconds over weight, over the accounts that had a request to seat all through the window. 1: all got
 * the same; 1/n: one of n got everything.
 */
export class FairnessWindow {
  #from = 0;
  #index: number | undefined;

  /** Of the last window that ended. */
  get index(): number | undefined {
    return this.#index;
  }

  /** Ends the window if its time is over. `active`: the accounts that wait or run, charged up to `now`. */
  roll(now: number, active: Heap<Account>): void {
    if (now - this.#from < WINDOW_MS) return;
    const shares: number[] = [];
    active.each((account) => {
      if (account.backloggedSince !== undefined && account.backloggedSince <= this.#from) shares.push(account.windowMs);
      account.windowMs = 0;
    });
    this.#index = shares.length > 1 ? jain(shares) : undefined;
    this.#from = now;
  }
}

/** Jain's index of shares; 1 where all are 0. */
export function jain(shares: readonly number[]): number {
  const sum = shares.reduce((total, share) => total + share, 0);
  const squares = shares.reduce((total, share) => total + share * share, 0);
  return squares === 0 ? 1 : (sum * sum) / (shares.length * squares);
}
