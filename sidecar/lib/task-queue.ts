/** Tasks, one at a time: each begins when the one before it has ended, however that was. */

/** Tasks that wait for the one before them. */
const MAX_WAITING = 32;

export class TaskQueue {
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  /** Undefined if too many wait. */
  async run<T>(work: () => Promise<T>): Promise<T | undefined> {
    if (this.#waiting >= MAX_WAITING) return undefined;
    this.#waiting += 1;
    const done = this.#last.then(work, work);
    this.#last = done;
    try {
      return await done;
    } finally {
      this.#waiting -= 1;
    }
  }
}
