/**
 * `Idempotency-Key`: a request that its caller sends twice under one key runs once.
 *
 *     claim ──> in flight ──complete()──> completed ──keepMs, or maxKeys newer ones──> forgotten
 *                   └──────release(): refused, failed, cancelled──> forgotten at once
 *
 * Semantics of the IETF's draft-ietf-httpapi-idempotency-key-header, without its replay: replies are content and are not
 * kept, so a completed request is not answered again, it is only never run again. Keys belong to an account. What is kept
 * of a key and of a body is one SHA-256 each. The store is this process's memory: a restart forgets it, and sidecars do
 * not share it.
 */
import { createHash } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import type { Clock } from '../lib/clock.js';

/** Hashed between two turns of the event loop, in bytes: about a millisecond. */
const SLICE_BYTES = 1024 * 1024;

/** As a bare token: visible ASCII without the quote that begins the other form. */
const BARE = /^[\x21\x23-\x7e]{1,255}$/;

/** As the draft's structured-field string: in quotes, with `\"` and `\\` for the two. No spaces, which only mislead. */
const QUOTED = /^"((?:[\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,255})"$/;

/** The key in a header's value, the same from both its forms; undefined: malformed. */
export function parseIdempotencyKey(value: string): string | undefined {
  if (BARE.test(value)) return value;
  return QUOTED.exec(value)?.[1]?.replace(/\\(.)/g, '$1');
}

/** What makes two requests the same: the route and every byte of the body. */
export async function fingerprint(route: string, body: Uint8Array): Promise<string> {
  const hash = createHash('sha256').update(`${route}\0`);
  for (let at = 0; at < body.byteLength; at += SLICE_BYTES) {
    if (at > 0) await turn();
    hash.update(body.subarray(at, at + SLICE_BYTES));
  }
  return hash.digest('binary');
}

/** A key that one request holds. Whoever has it must end it; the first call counts, the others do nothing. */
export interface Claim {
  /** The request ran to its end: the key is used up. */
  complete(): void;
  /** It did not: the key is as if never seen. */
  release(): void;
}

export type Claimed =
  | { readonly kind: 'claimed'; readonly claim: Claim }
  /** The key was seen with another body. */
  | { readonly kind: 'other-body' }
  /** The same request is under way, or was completed. */
  | { readonly kind: 'in-flight' | 'completed' };

/** What a request without a key holds. */
export const NO_CLAIM: Claim = { complete: () => undefined, release: () => undefined };

export interface IdempotencyLimits {
  /** Completed keys that are remembered, all accounts together; the oldest goes first. */
  readonly maxKeys: number;
  /** How long a key is remembered after its request was completed, ms. */
  readonly keepMs: number;
}

/** A completed key, linked in the order of completion, which is that of forgetting. */
interface Remembered {
  readonly id: string;
  readonly fingerprint: string;
  /** Clock reading. */
  readonly until: number;
  next: Remembered | undefined;
}

/** The keys that were seen. Those in flight come on top of `maxKeys`; each has or waits for a seat, which bounds them. */
export class IdempotencyKeys {
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

  /** Takes `key` for a request of `account` with this {@link fingerprint}, unless the key was seen. */
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

  /** Drops what is too old or too much. Each key is dropped once, so this costs a claim next to nothing. */
  #forget(): void {
    const now = this.#clock.now();
    while (this.#oldest && (this.#oldest.until <= now || this.#completed.size > this.#limits.maxKeys)) {
      this.#completed.delete(this.#oldest.id);
      this.#oldest = this.#oldest.next;
    }
    if (this.#oldest === undefined) this.#newest = undefined;
  }
}
