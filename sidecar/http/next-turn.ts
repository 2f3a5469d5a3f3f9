/**
 * Work for after the present callbacks of the event loop. Replies are written there, never inside uWS's parser: it parses
 * all requests of one read while its one cork of 16 KiB is open, so that several answers would share it, and it drops a
 * piece that meets the end of the cork while the socket is full (upstream 6b7f354). At most one task an exchange waits.
 */
export class NextTurn {
  #tasks: (() => void)[] = [];

  /** Runs `task` in this iteration of the loop, once its I/O callbacks have returned. A task must not throw. */
  add(task: () => void): void {
    if (this.#tasks.push(task) === 1) setImmediate(() => this.run());
  }

  /** Runs what waits now. */
  run(): void {
    const tasks = this.#tasks;
    this.#tasks = [];
    for (const task of tasks) task();
  }
}
