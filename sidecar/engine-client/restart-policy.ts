import { Backoff } from '../lib/backoff.js';
import type { ChildEnd } from '../lib/child-process.js';

/** Starts that crash before the model is considered the cause. */
const MAX_CRASHED_STARTS = 3;

/** What follows after an engine process ended. */
export type Next =
  /** No restart, since it would fail again. `why`: one line for the operator. `unfit`: by the engine's own word. */
  | { readonly kind: 'final'; readonly why: string; readonly unfit: boolean }
  /** A restart after `waitMs`. */
  | { readonly kind: 'again'; readonly waitMs: number };

export interface RestartTiming {
  /**
   * The wait before a restart, from the first to the longest; a process that was ready for the longest wait resets it.
   */
  readonly backoffMinMs: number;
  readonly backoffMaxMs: number;
}

/**
 * Separates permanent failures from temporary ones. A file that cannot be served stays so. Memory used by other
 * processes may become free; but at the very first start this is reported at once to the operator. An engine that was
 * ready once is always restarted.
 */
export class RestartPolicy {
  readonly #backoff: Backoff;
  readonly #maxMs: number;
  /** Whether a first start may be retried later, at the next request. */
  readonly #patient: boolean;
  #everReady = false;
  #crashedStarts = 0;

  constructor({ backoffMinMs, backoffMaxMs }: RestartTiming, random: () => number, patient: boolean) {
    this.#backoff = new Backoff(backoffMinMs, backoffMaxMs, random);
    this.#maxMs = backoffMaxMs;
    this.#patient = patient;
  }

  /** A process ended. `readyMs`: how long it was ready; undefined: never. */
  after(end: ChildEnd, readyMs: number | undefined): Next {
    if (readyMs !== undefined) this.#everReady = true;
    const why = this.#hopeless(end);
    if (why !== undefined) return { kind: 'final', why, unfit: end.reason === 'unable' };
    if (readyMs !== undefined && readyMs >= this.#maxMs) this.#backoff.reset();
    return { kind: 'again', waitMs: this.#backoff.next() };
  }

  #hopeless({ reason, detail, hint, mayMend }: ChildEnd): string | undefined {
    if (reason === 'unable') {
      const wait = mayMend === true && (this.#everReady || this.#patient);
      return wait ? undefined : (detail ?? 'no reason given');
    }
    if (this.#everReady || (reason !== 'aborted' && reason !== 'crashed')) return undefined;
    this.#crashedStarts += 1;
    if (this.#crashedStarts < MAX_CRASHED_STARTS) return undefined;
    const how = hint === undefined ? reason : `${reason}: ${hint}`;
    const look = hint === 'device-error' ? 'ra-sidecar doctor runs a step on the GPU' : 'the file may be damaged';
    return `llama.cpp ended each of ${MAX_CRASHED_STARTS} loads by a crash (${how}); ${look}`;
  }
}
