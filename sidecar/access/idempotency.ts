/**
 * `Idempotency-Key`: a request that its caller sends twice with one key runs once.
 *
 *     claim ──> in flight ──complete()──> completed ──keepMs, or maxKeys newer ones──> removed
 *                   └──────release(): refused, failed, cancelled──> removed at once
 *
 * It follows the IETF's draft-ietf-httpapi-idempotency-key-header, without replay: replies are content and are not
 * stored, so a repeat of a completed request gets an error and does not run again. Keys belong to an account. Only one
 * SHA-256 of the key and one of the body are stored. They are in this process's memory: a restart loses them, and
 * sidecars share them only through a store (store/claims.ts).
 */
import { createHash } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import type { Clock } from '../lib/clock.js';

/** Bytes hashed per turn of the event loop: about a millisecond. */
const SLICE_BYTES = 1024 * 1024;

/** A bare token: visible ASCII without the quote that starts the other form. */
const BARE = /^[\x21\x23-\x7e]{1,255}$/;

/** The draft's structured-field string: in quotes, with `\"` and `\\` as escapes. No spaces, which would cause confusion. */
const QUOTED = /^"((?:[\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,255})"$/;

/** The key in a header's value, the same from both its forms; undefined if it is malformed. */
export function parseIdempotencyKey(value: string): string | undefined {
  if (BARE.test(value)) return value;
  return QUOTED.exec(value)?.[1]?.replace(/\\(.)/g, '$1');
}

/** Two requests are the same if the route and every byte of the body are equal. */
export async function fingerprint(route: string, body: Uint8Array): Promise<string> {
  const hash = createHash('sha256').update(`${route}\0`);
  for (let at = 0; at < body.byteLength; at += SLICE_BYTES) {
    if (at > 0) await turn();
    hash.update(body.subarray(at, at + SLICE_BYTES));
  }
  return hash.digest('binary');
}

/** A key claimed by one request. Its owner must end it; only the first call counts. */
export interface Claim {
  /** Names the key in usage records, where a store needs it after a restart. */
  readonly id?: string;
  /** The request was completed: the key is consumed. */
  complete(): void;
  /** It was not: the key can be used again. */
  release(): void;
}

export type Claimed =
  | { readonly kind: 'claimed'; readonly claim: Claim }
  /** The key was used with another body or route. */
  | { readonly kind: 'other-body' }
  /** The same request is running, or was completed. */
  | { readonly kind: 'in-flight' | 'completed' };

/** What a store of a fleet's keys answers: it may not answer. */
export type FleetClaimed = Claimed | { readonly kind: 'unavailable'; readonly retryAfterMs: number };

/** The used keys: of this process ({@link IdempotencyKeys}), or of a fleet (store/claims.ts). Never throws or rejects. */
export interface IdempotencyClaims {
  /** Claims `key` for a request of `account` with this {@link fingerprint}, unless the key was used. */
  claim(account: string, key: string, fingerprint: string): Claimed | Promise<FleetClaimed>;
}

/** The claim of a request without a key. */
export const NO_CLAIM: Claim = { complete: () => undefined, release: () => undefined };

export interface IdempotencyLimits {
  /** Completed keys that are remembered, over all accounts; the oldest is removed first. */
  readonly maxKeys: number;
  /** How long a key is remembered after completion, ms. */
  readonly keepMs: number;
}

/** A completed key, linked in the order of completion. */
interface Remembered {
  readonly id: string;
  readonly fingerprint: string;
  /** Clock reading. */
  readonly until: number;
  next: Remembered | undefined;
}

/** The used keys. Those in flight are not limited by `maxKeys`; they are bounded by seats and queue. */
export class IdempotencyKeys implements IdempotencyClaims {
  readonly #clock: Clock;
  readonly #limits: IdempotencyLimits;
  /** Key -> fingerprint. */
  readonly #inFlight = new Map<string, string>();
  readonly #completed = new Map<string, Remembered>();
  #oldest: Remembered | undefined;
  #newest: Remembered | undefined;

  constructor(clock: Clock, limits: IdempotencyLimits) {
    this.#clock = clock;
    this.#limits = limits;
  }

  /** Keys remembered now. */
  get size(): number {
    return this.#inFlight.size + this.#completed.size;
  }

  claim(account: string, key: string, fingerprint: string): Claimed {
    this.#forget();
    const id = createHash('sha256').update(`${account}\0${key}`).digest('binary');
    const running = this.#inFlight.get(id);
    const seen = running ?? this.#completed.get(id)?.fingerprint;
    if (seen === undefined) return { kind: 'claimed', claim: this.#take(id, fingerprint) };
    if (seen !== fingerprint) return { kind: 'other-body' };
    return { kind: running === undefined ? 'completed' : 'in-flight' };
  }

  #take(id: string, fingerprint: string): Claim {
    this.#inFlight.set(id, fingerprint);
    let over = false;
    const end = (completed: boolean): void => {
      if (over) return;
      over = true;
      this.#inFlight.delete(id);
      if (completed) this.#remember(id, fingerprint);
    };
    return { complete: () => end(true), release: () => end(false) };
  }

  #remember(id: string, fingerprint: string): void {
    const until = this.#clock.now() + this.#limits.keepMs;
    const remembered: Remembered = { id, fingerprint, until, next: undefined };
    this.#completed.set(id, remembered);
    if (this.#newest === undefined) this.#oldest = remembered;
    else this.#newest.next = remembered;
    this.#newest = remembered;
    this.#forget();
  }

  /** Removes expired and excess keys. Each key is removed once, so the cost per claim is small. */
  #forget(): void {
    const now = this.#clock.now();
    while (this.#oldest && (this.#oldest.until <= now || this.#completed.size > this.#limits.maxKeys)) {
      this.#completed.delete(this.#oldest.id);
      this.#oldest = this.#oldest.next;
    }
    if (this.#oldest === undefined) this.#newest = undefined;
  }
}
