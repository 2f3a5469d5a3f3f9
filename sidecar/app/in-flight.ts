import type { Server } from '../http/server.js';
import type { Clock } from '../lib/clock.js';

/** Twice this is the time at a drain's end for the last bytes of replies, before connections are closed, ms. */
export const FLUSH_MS = 100;

/** How often it is looked whether readers have taken what was sent to them, ms. */
const LOOK_MS = 50;

/** Resolves once no answer waits for its reader any more, or at the clock reading `until`. */
export async function taken(server: Pick<Server, 'bufferedBytes'>, clock: Clock, until: number): Promise<void> {
  while (server.bufferedBytes > 0 && clock.now() < until) await new Promise<void>((look) => clock.after(LOOK_MS, look));
}

/** Counts running requests, so that a drain can wait for the last of them. */
export class InFlight {
  #count = 0;
  readonly #waiting = new Set<() => void>();

  get count(): number {
    return this.#count;
  }

  async run(work: () => Promise<void>): Promise<void> {
    this.#count += 1;
    try {
      await work();
    } finally {
      this.#count -= 1;
      if (this.#count === 0) for (const settle of this.#waiting) settle();
    }
  }

  /** Resolves with true once no request runs, and with false after `ms`. */
  idle(clock: Clock, ms: number): Promise<boolean> {
    if (this.#count === 0) return Promise.resolve(true);
    return new Promise((resolve) => {
      const cancel = clock.after(ms, () => {
        this.#waiting.delete(settle);
        resolve(false);
      });
      const settle = (): void => {
        cancel();
        this.#waiting.delete(settle);
        resolve(true);
      };
      this.#waiting.add(settle);
    });
  }
}
