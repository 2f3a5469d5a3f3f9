/**
 * Why no new usage is accepted: a write or a sync failed, one takes too long, the disk is full, the spool is too large,
 * a file of the spool was removed from outside, or another process writes the spool.
 */
export type HealthProblem = 'write' | 'late' | 'space' | 'backlog' | 'removed' | 'taken';

export type Health = { readonly ok: true } | { readonly ok: false; readonly why: HealthProblem };

/**
 * Successful probes in a row that make an unhealthy spool healthy; a single one could be chance on an unreliable disk.
 */
const GOOD_PROBES = 3;

const WELL: Health = { ok: true };

/** Whether the spool is healthy, and when it becomes healthy again. */
export class SpoolHealth {
  readonly #changed: (health: Health) => void;
  #state: Health = WELL;
  #good = 0;

  /** `changed` is called for each change of `ok`. */
  constructor(changed: (health: Health) => void) {
    this.#changed = changed;
  }

  get state(): Health {
    return this.#state;
  }

  /** Something is wrong now. */
  failed(why: HealthProblem): void {
    const was = this.#state;
    this.#state = { ok: false, why };
    this.#good = 0;
    if (was.ok) this.#changed(this.#state);
  }

  /** A probe found nothing wrong. */
  passed(): void {
    if (this.#state.ok || ++this.#good < GOOD_PROBES) return;
    this.#state = WELL;
    this.#changed(WELL);
  }
}
