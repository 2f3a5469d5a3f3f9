/**
 * Runs tasks after the current callbacks of the event loop. Replies are written there and not inside uWS's parser: the
 * parser handles all requests of one read with one open cork of 16 KiB, so several answers would share it, and uWS
 * loses data that crosses the cork's end while the socket is full (upstream 6b7f354). At most one task per exchange
 * waits.
 */
export class NextTurn {
  #tasks: (() => void)[] = [];

  /** Runs `task` in this iteration of the loop, once its I/O callbacks have returned. A task must not throw. */
  add(task: () => void): void {
    if (this.#tasks.push(task) === 1) setImmediate(() => this.run());
  }

  /** Runs the waiting tasks now. */
  run(): void {
    const tasks = this.#tasks;
    this.#tasks = [];
    for (const task of tasks) task();
  }
}
