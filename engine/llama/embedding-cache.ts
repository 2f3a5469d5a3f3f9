/** Embeddings of images by their digests, within a bound of bytes: those used longest ago make room. */
export class EmbeddingCache {
  readonly #most: number;
  /** In the order of their last use. */
  readonly #kept = new Map<string, readonly Float32Array[]>();
  #bytes = 0;

  constructor(bytes: number) {
    this.#most = bytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get(digest: Uint8Array): readonly Float32Array[] | undefined {
    const key = keyOf(digest);
    const found = this.#kept.get(key);
    if (!found) return undefined;
    this.#kept.delete(key);
    this.#kept.set(key, found);
    return found;
  }

  /** Embeddings that are larger than the bound are not kept. */
  set(digest: Uint8Array, embeddings: readonly Float32Array[]): void {
    const bytes = bytesOf(embeddings);
    const key = keyOf(digest);
    if (bytes > this.#most || this.#kept.has(key)) return;
    for (const [oldest, kept] of this.#kept) {
      if (this.#bytes + bytes <= this.#most) break;
      this.#bytes -= bytesOf(kept);
      this.#kept.delete(oldest);
    }
    this.#kept.set(key, embeddings);
    this.#bytes += bytes;
  }
}

function bytesOf(embeddings: readonly Float32Array[]): number {
  return embeddings.reduce((sum, { byteLength }) => sum + byteLength, 0);
}

function keyOf(digest: Uint8Array): string {
  return Buffer.from(digest.buffer, digest.byteOffset, digest.byteLength).toString('latin1');
}
