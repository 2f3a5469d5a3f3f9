import type { Chunk } from './chunked.js';

/**
 * Bytes of a raw body per cork. uWS's buffer has 16 KiB, and it loses data that crosses the buffer's end while the
 * socket is full (upstream 6b7f354). The rest is for the head, at most the 4 KiB of a request's head and our own
 * fields, and for a trailer.
 */
export const RAW_BYTES = 8 * 1024;

/** Of their bytes. */
export function total(chunks: readonly Chunk[]): number {
  let sum = 0;
  for (const { bytes } of chunks) sum += bytes;
  return sum;
}

/** The chunks in order, grouped by what one cork may contain; at least one group, which may be empty. */
export function corks(chunks: readonly Chunk[]): (readonly Chunk[])[] {
  if (total(chunks) <= RAW_BYTES) return [chunks];
  let part: Chunk[] = [];
  let bytes = 0;
  const parts = [part];
  for (const made of chunks) {
    if (bytes > 0 && bytes + made.bytes > RAW_BYTES) {
      parts.push((part = []));
      bytes = 0;
    }
    part.push(made);
    bytes += made.bytes;
  }
  return parts;
}
