import type { Policy } from './door.js';
import { ReferenceQueue, type Discipline, type Waiting } from './reference-queue.js';

/** Every server without admission control: all wait, and whoever left is served all the same. */
export const fifoUnbounded: Policy = {
  name: 'FIFO',
  open: (setting) => new ReferenceQueue(setting, new Fifo(), {}),
};

/** So many wait that the last of them can just be served in time; whoever left is not served. */
export const fifoWithCap: Policy = {
  name: 'FIFO with cap',
  open: (setting) => new ReferenceQueue(setting, new Fifo(), { waiting: 8 * setting.seats, ttlMs: setting.patienceMs }),
};

class Fifo implements Discipline {
  /** A set keeps the order of arrival. */
  readonly #waiting = new Set<Waiting>();

  add(waiting: Waiting): void {
    this.#waiting.add(waiting);
  }

  take(): Waiting | undefined {
    const [first] = this.#waiting;
    if (first !== undefined) this.#waiting.delete(first);
    return first;
  }

  remove(waiting: Waiting): void {
    this.#waiting.delete(waiting);
  }
}
