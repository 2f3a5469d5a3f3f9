import type { RunningItem } from './job.js';

/**
 * Calls from outside of a step loop, and the wait in which nothing can be decoded before one comes: its replies wait
 * for their grammars' masks, its prompts for images' embeddings.
 */
export class PendingWait {
  #interrupted = false;
  #wake: () => void = () => undefined;

  /** A call from outside since the round began. */
  get interrupted(): boolean {
    return this.#interrupted;
  }

  nextRound(): void {
    this.#interrupted = false;
  }

  /** A call from outside, which ends the wait. */
  interrupt(): void {
    this.#interrupted = true;
    this.#wake();
  }

  /**
   * Settles with the next call, or when one of the masks or embeddings that the loop waits for is ready; at once if it
   * waits for none, or one was ready. `waits`: called before the wait.
   */
  async forOne(running: readonly RunningItem[], waits: () => void): Promise<void> {
    const pending = running.flatMap(({ branch }) => branch.pending ?? branch.awaitsImage ?? []);
    if (pending.length === 0 || this.#interrupted) return;
    waits();
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      for (const each of pending) void each.then(resolve);
    });
    this.#wake = () => undefined;
  }
}
