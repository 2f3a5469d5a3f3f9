import { Backoff } from '../lib/backoff.js';
import type { ChildEnd } from './child.js';

/** Starts that may end by a fault of the engine's own before that is taken for how this model is. */
const MAX_CRASHED_STARTS = 3;

/** What comes after a life of an engine. */
export type Next =
  /** Nothing: no further try would do better. `why`: one line for the operator. */
  | { readonly kind: 'final'; readonly why: string }
  /** Another try after so many ms. */
  | { readonly kind: 'again'; readonly waitMs: number };

export interface RestartTiming {
  /** The wait before a restart, from the first to the longest; a life that was ready for the longest resets it. */
  readonly backoffMinMs: number;
  readonly backoffMaxMs: number;
}

/**
 * Tells what mends from what does not. A file that cannot be served stays so. Memory that others hold may come free: but
 * at the very first start that is told at once to whoever started the sidecar, and not waited for. An engine that was
 * ready once is tried for ever.
 */
export class RestartPolicy {
  readonly #backoff: Backoff;
  readonly #maxMs: number;
  /** Whether a first start may be tried again later: somebody else will ask for it. */
  readonly #patient: boolean;
  #everReady = false;
  #crashedStarts = 0;

  constructor({ backoffMinMs, backoffMaxMs }: RestartTiming, random: () => number, patient: boolean) {
    this.#backoff = new Backoff(backoffMinMs, backoffMaxMs, random);
    this.#maxMs = backoffMaxMs;
    this.#patient = patient;
  }

  /** A life ended. `readyMs`: how long it had been ready; undefined: it never was. */
  after(end: ChildEnd, readyMs: number | undefined): Next {
    if (readyMs !== undefined) this.#everReady = true;
    const why = this.#hopeless(end);
    if (why !== undefined) return { kind: 'final', why };
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
    return `llama.cpp ended each of ${MAX_CRASHED_STARTS} loads by a fault of its own (${how}); the file may be damaged`;
  }
}
