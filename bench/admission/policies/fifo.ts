import type { Policy } from './door.js';
import { ReferenceQueue, type Discipline, type Waiting } from './reference-queue.js';

/** A server without admission control: all requests wait, and those of callers that left are still served. */
export const fifoUnbounded: Policy = {
  name: 'FIFO',
  open: (setting) => new ReferenceQueue(setting, new Fifo(), {}),
};

/** The queue is bounded so that its last request can just be served in time; requests of callers that left are not served. */
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
