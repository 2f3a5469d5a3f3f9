/** Reads an event stream of JSON frames, as servers of models send it. */

/** The longest line of a stream whose frames have new tokens alone, bytes: some thousand times such a frame. */
export const MAX_LINE_BYTES = 1024 * 1024;

const NEWLINE = 0x0a;
const BYTE_ORDER_MARK = 0xfeff;

/** What a stream's next bytes contained. */
export type Frame =
  | { readonly kind: 'json'; readonly value: unknown }
  /** `[DONE]`: nothing comes after it. */
  | { readonly kind: 'done' }
  | { readonly kind: 'garbage' }
  /** A line that is longer than the bound. No frame follows. */
  | { readonly kind: 'long' };

/** Bytes arrive in any pieces. Lines other than `data:` (comments, pings, event names) are skipped. */
export class EventStream {
  readonly #maxLine: number;
  /** The line that has begun: a copy, since a piece of a few bytes would keep the memory of all that was read with it. */
  #line = Buffer.alloc(0);
  #size = 0;

  /** `maxLine`: bytes. */
  constructor(maxLine: number) {
    this.#maxLine = maxLine;
  }

  /** A frame has begun and not ended. */
  get unfinished(): boolean {
    return this.#text().trim() !== '';
  }

  /** Adds bytes; returns the frames that are complete now. */
  push(bytes: Uint8Array): Frame[] {
    const frames: Frame[] = [];
    let from = 0;
    for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, from)) {
      if (!this.#add(bytes.subarray(from, end))) return [...frames, { kind: 'long' }];
      frames.push(...frameOf(this.#text()));
      this.#size = 0;
      from = end + 1;
    }
    return this.#add(bytes.subarray(from)) ? frames : [...frames, { kind: 'long' }];
  }

  /** False: the line is too long. */
  #add(bytes: Uint8Array): boolean {
    const size = this.#size + bytes.length;
    if (size > this.#maxLine) return false;
    if (size > this.#line.length) {
      const larger = Buffer.alloc(Math.min(this.#maxLine, Math.max(size, 2 * this.#line.length)));
      this.#line.copy(larger, 0, 0, this.#size);
      this.#line = larger;
    }
    this.#line.set(bytes, this.#size);
    this.#size = size;
    return true;
  }

  #text(): string {
    const text = this.#line.toString('utf8', 0, this.#size);
    return text.charCodeAt(0) === BYTE_ORDER_MARK ? text.slice(1) : text;
  }
}

function frameOf(line: string): Frame[] {
  if (!line.startsWith('data:')) return [];
  const data = line.slice('data:'.length).trim();
  if (data === '[DONE]') return [{ kind: 'done' }];
  try {
    return [{ kind: 'json', value: JSON.parse(data) as unknown }];
  } catch {
    return [{ kind: 'garbage' }];
  }
}
