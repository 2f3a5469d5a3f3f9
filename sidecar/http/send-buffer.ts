/** Bytes of a block: the size of uWS's write buffer. A slow reader wastes up to two blocks. */
export const BLOCK_BYTES = 16 * 1024;

/**
 * Blocks kept for the next reader who is behind, 32 MiB of them, half of what all may hold by default; more are left to the
 * collector. It is late: callers who leave long replies unread and come again then cost their memory several times over.
 */
const SPARE_BLOCKS = 2048;

/** The most bytes of a character in UTF-8. */
const CHARACTER_BYTES = 4;

const encoder = new TextEncoder();

/**
 * Memory blocks for the unread data of one server's readers, lent and returned. Separate buffers for each piece of text
 * would double the memory by their objects, and would be collected late.
 */
export class Blocks {
  readonly #spare: Uint8Array[] = [];

  /** A block of {@link BLOCK_BYTES} of zeros. It belongs to the reader's buffer until {@link release}. */
  acquire(): Uint8Array {
    return this.#spare.pop() ?? new Uint8Array(BLOCK_BYTES);
  }

  /** What was in it is overwritten: a spare block may stay for as long as the process runs. */
  release(block: Uint8Array): void {
    if (this.#spare.length < SPARE_BLOCKS) this.#spare.push(block.fill(0));
  }
}

interface Part {
  readonly block: Uint8Array;
  /** Start of the unread bytes. */
  start: number;
  /** End of the written bytes. */
  end: number;
}

/** The unread data of one reader, first in, first out, in blocks of the server. */
export class SendBuffer {
  readonly #blocks: Blocks;
  readonly #parts: Part[] = [];
  #bytes = 0;

  constructor(blocks: Blocks) {
    this.#blocks = blocks;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Appends `text` in UTF-8. */
  push(text: string): void {
    for (let from = 0; from < text.length;) {
      const part = this.#open();
      const { read, written } = encoder.encodeInto(from === 0 ? text : text.slice(from), part.block.subarray(part.end));
      part.end += written;
      this.#bytes += written;
      from += read;
    }
  }

  /** The first waiting bytes that are contiguous; undefined: none. Valid until the next call of another method. */
  first(): Uint8Array | undefined {
    const part = this.#parts[0];
    return part?.block.subarray(part.start, part.end);
  }

  /** The first `bytes` of {@link first} were sent. */
  shift(bytes: number): void {
    const part = this.#parts[0];
    if (part === undefined) return;
    part.start += bytes;
    this.#bytes -= bytes;
    if (part.start === part.end) {
      this.#parts.shift();
      this.#blocks.release(part.block);
    }
  }

  /** Drops all waiting data. */
  clear(): void {
    for (const { block } of this.#parts) this.#blocks.release(block);
    this.#parts.length = 0;
    this.#bytes = 0;
  }

  /** The last part, with room for any character. */
  #open(): Part {
    const last = this.#parts.at(-1);
    if (last !== undefined && last.end + CHARACTER_BYTES <= BLOCK_BYTES) return last;
    const part = { block: this.#blocks.acquire(), start: 0, end: 0 };
    this.#parts.push(part);
    return part;
  }
}
