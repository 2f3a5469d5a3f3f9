import type { CacheScope } from '../../engine/protocol/cache-key.js';
import type { EngineChild } from './child.js';

/** Processes that take no new job: each is closed once its last job has ended. A replica has one at most: another is loaded only after it. */
export class RetiredChildren {
  readonly #closeMs: number;
  readonly #children = new Set<EngineChild>();

  /** `closeMs`: from `shutdown` to SIGKILL. */
  constructor(closeMs: number) {
    this.#closeMs = closeMs;
  }

  /** One still runs. */
  get busy(): boolean {
    return this.#children.size > 0;
  }

  /** Settles when none that there is now runs any more. */
  get gone(): Promise<unknown> {
    return Promise.all([...this.#children].map(({ exited }) => exited));
  }

  add(child: EngineChild): void {
    this.#children.add(child);
    child.mux.whenIdle(() => void this.#close(child));
  }

  /** Fails the jobs of a process that ended. Returns whether it was one of these. */
  ended(child: EngineChild): boolean {
    if (!this.#children.delete(child)) return false;
    child.mux.lost('lost');
    return true;
  }

  forget(scope: CacheScope): void {
    for (const child of this.#children) child.forget(scope);
  }

  /** Fails their jobs. Settles when none runs any more. */
  async close(): Promise<void> {
    const all = [...this.#children];
    for (const { mux } of all) mux.lost('lost');
    await Promise.all(all.map((child) => this.#close(child)));
  }

  async #close(child: EngineChild): Promise<void> {
    await child.close(this.#closeMs);
    this.#children.delete(child);
  }
}
