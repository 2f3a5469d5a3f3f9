import type { Vision } from './vision.js';
import { type CacheScope, ClosedScopes } from '../protocol/cache-key.js';
import type { Clock } from '../protocol/clock.js';
import type { EncodeTask } from '../protocol/vision-messages.js';

interface CachedImage {
  readonly embeddings: readonly Float32Array[];
  readonly scope: CacheScope;
  usedAt: number;
}

/**
 * Embeddings of images by their digests, within a bound of bytes: those used longest ago make room. They also go once they were
 * not used for the longest age, and with their scope.
 */
export class EmbeddingCache {
  readonly #most: number;
  readonly #maxAgeMs: number;
  readonly #clock: Pick<Clock, 'now'>;
  /** In the order of their last use. */
  readonly #kept = new Map<string, CachedImage>();
  readonly #closed = new ClosedScopes();
  #bytes = 0;

  constructor(bytes: number, maxAgeMs: number, clock: Pick<Clock, 'now'>) {
    this.#most = bytes;
    this.#maxAgeMs = maxAgeMs;
    this.#clock = clock;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get(digest: Uint8Array): readonly Float32Array[] | undefined {
    this.expire();
    const key = keyOf(digest);
    const found = this.#kept.get(key);
    if (!found) return undefined;
    found.usedAt = this.#clock.now();
    this.#kept.delete(key);
    this.#kept.set(key, found);
    return found.embeddings;
  }

  /** Embeddings that are larger than the bound, or of a scope that is closed, are not kept. */
  set(digest: Uint8Array, embeddings: readonly Float32Array[], scope: CacheScope): void {
    const bytes = bytesOf(embeddings);
    const key = keyOf(digest);
    if (bytes > this.#most || this.#kept.has(key) || this.#closed.has(scope)) return;
    for (const oldest of this.#kept.keys()) {
      if (this.#bytes + bytes <= this.#most) break;
      this.#drop(oldest);
    }
    this.#kept.set(key, { embeddings, scope, usedAt: this.#clock.now() });
    this.#bytes += bytes;
  }

  /** Drops what was not used for the longest age. */
  expire(): void {
    const before = this.#clock.now() - this.#maxAgeMs;
    for (const [key, { usedAt }] of this.#kept) {
      if (usedAt >= before) break;
      this.#drop(key);
    }
  }

  /** Drops all of a scope, of which nothing is kept from now on; where all accounts share one, all that is here now. */
  forget(scope: CacheScope): void {
    for (const [key, entry] of this.#kept) if (entry.scope === scope) this.#drop(key);
    this.#closed.close(scope);
  }

  #drop(key: string): void {
    const entry = this.#kept.get(key);
    if (!entry) return;
    this.#kept.delete(key);
    this.#bytes -= bytesOf(entry.embeddings);
  }
}

/** The message that {@link Vision.encode} rejects with for a file that cannot be decoded. */
const UNDECODABLE = 'undecodable';

/** Embeddings for each part of an image's layout that has some, or why there are none. */
export type Encoded =
  | { readonly kind: 'encoded'; readonly embeddings: readonly Float32Array[] }
  | { readonly kind: 'refused'; readonly why: 'undecodable' | 'failed' };

/**
 * Tasks that wait or are encoded, at most. The sidecar sends the next one when it has the answer to the one before, so that more are a
 * fault of the sidecar.
 */
const MAX_TASKS = 16;

/**
 * Encodes images one at a time, in the order of the calls: the projector has one compute buffer, which two encodings would both write
 * to. What was encoded is taken from the cache, also by a call that waited for it.
 */
export class ImageEncoder {
  readonly #vision: Pick<Vision, 'encode'>;
  readonly #cache: EmbeddingCache;
  #last: Promise<unknown> = Promise.resolve();
  #tasks = 0;

  constructor(vision: Pick<Vision, 'encode'>, cache: EmbeddingCache) {
    this.#vision = vision;
    this.#cache = cache;
  }

  /** Never rejects. Refused as failed where too many wait. */
  async encode(task: EncodeTask): Promise<Encoded> {
    if (this.#tasks >= MAX_TASKS) return { kind: 'refused', why: 'failed' };
    this.#tasks += 1;
    const encoded = this.#last.then(() => this.#encodeNow(task));
    this.#last = encoded;
    try {
      return await encoded;
    } finally {
      this.#tasks -= 1;
    }
  }

  async #encodeNow(task: EncodeTask): Promise<Encoded> {
    try {
      const kept = this.#cache.get(task.digest);
      const embeddings = kept ?? (await this.#vision.encode(task));
      if (!kept) this.#cache.set(task.digest, embeddings, task.scope);
      return { kind: 'encoded', embeddings };
    } catch (error) {
      const undecodable = error instanceof Error && error.message === UNDECODABLE;
      return { kind: 'refused', why: undecodable ? 'undecodable' : 'failed' };
    }
  }
}

function bytesOf(embeddings: readonly Float32Array[]): number {
  return embeddings.reduce((sum, { byteLength }) => sum + byteLength, 0);
}

function keyOf(digest: Uint8Array): string {
  return Buffer.from(digest.buffer, digest.byteOffset, digest.byteLength).toString('latin1');
}
