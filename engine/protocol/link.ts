/**
 * The channel between two of our processes: one pipe with framed messages. Both sides import this file. A frame, with numbers in
 * four bytes, little-endian:
 *
 *     bytes that follow | bytes of text | arrays | text, JSON in UTF-8 | the arrays' bytes
 *
 * For a typed array in the message, the text has `{"$": kind, "at": first byte, "bytes": count}`. Messages are objects
 * with our own keys only, so nothing else looks like that. Values that JSON cannot represent (NaN, undefined in a list,
 * bigint) are not allowed.
 *
 * Node's own channel with `serialization: 'advanced'` would work, but costs more: each message leaves objects that are
 * tied to native memory, and young collections of both processes take a dozen times as long as with this channel, and a
 * round trip a third longer (bench/results/link.md).
 */
import type { ChildProcess } from 'node:child_process';
import { Socket } from 'node:net';

/** The child's end of the link; the parent passes it as the fourth of `stdio`, as `'pipe'`. */
const LINK_FD = 3;

/** Bytes that a child reads at once. */
const READ_BYTES = 64 * 1024;

export interface LinkEvents {
  /** An unchecked message of the other side; `undefined`, and nothing after it, if the data is no valid frame. */
  message(raw: unknown): void;
  /** Once: the other side is gone, or this one was closed. */
  closed(): void;
}

/** One end of a link. Messages are buffered without a bound while the other side does not read: the protocol bounds them. */
export class Link {
  readonly #socket: Socket;

  private constructor(socket: Socket, events: LinkEvents) {
    this.#socket = socket;
    // An error is followed by `close`.
    socket.on('error', () => undefined);
    socket.once('close', () => events.closed());
  }

  /** The end of a child that was started with this link. Throws if it was not. */
  static toParent(events: LinkEvents): Link {
    const reader = new FrameReader((raw) => events.message(raw));
    // One buffer for all reads, since the reader keeps no reference to it.
    const callback = (bytes: number, buffer: Uint8Array): boolean => {
      reader.push(buffer.subarray(0, bytes));
      return true;
    };
    const onread = { buffer: Buffer.allocUnsafeSlow(READ_BYTES), callback };
    // Undocumented for its constructor, but supported as in connect().
    const options: ConstructorParameters<typeof Socket>[0] & { onread: typeof onread } = {
      fd: LINK_FD,
      readable: true,
      writable: true,
      onread,
    };
    return new Link(new Socket(options), events);
  }

  /** The end of the parent of `child`, which was spawned with a pipe at {@link LINK_FD}. */
  static toChild(child: ChildProcess, events: LinkEvents): Link {
    const socket = child.stdio[LINK_FD];
    if (!(socket instanceof Socket)) throw new Error('the child was spawned without a link');
    const reader = new FrameReader((raw) => events.message(raw));
    socket.on('data', (chunk: Buffer) => reader.push(chunk));
    return new Link(socket, events);
  }

  /**
   * Never throws if the other side is gone: the message is lost, and `closed` is called. The message's arrays must not
   * be changed afterwards. `sent`: it has left this process, or is lost.
   */
  send(message: object, sent?: () => void): void {
    const [frame, ...large] = pack(message);
    const last = large.pop();
    // It has a copy of the message's texts.
    const written = (): void => {
      frame.fill(0);
      if (last === undefined) sent?.();
    };
    if (last === undefined) {
      this.#socket.write(frame, written);
      return;
    }
    this.#socket.cork();
    this.#socket.write(frame, written);
    for (const part of large) this.#socket.write(part);
    this.#socket.write(last, sent);
    this.#socket.uncork();
  }

  /** Drops unsent data at once. Idempotent. */
  close(): void {
    this.#socket.destroy();
  }
}

/** A longer frame is invalid. Request bodies are bounded far below it. */
const MOST_BYTES = 512 * 1024 * 1024;

/** Arrays of more than this in total are written without copying them into the frame, and read into place as they come. */
const COPY_BYTES = 64 * 1024;

const HEAD = 12;

/** A message as the bytes to write: one buffer, or the frame without its arrays and then these. Throws as `kindOf` does. */
export function pack(message: object): [Uint8Array, ...Uint8Array[]] {
  const arrays = new Arrays();
  const text = JSON.stringify(arrays.takenFrom(message));
  const textBytes = Buffer.byteLength(text);
  const inside = arrays.bytes <= COPY_BYTES;
  const frame = Buffer.allocUnsafe(HEAD + textBytes + (inside ? arrays.bytes : 0));
  frame.writeUInt32LE(HEAD - 4 + textBytes + arrays.bytes, 0);
  frame.writeUInt32LE(textBytes, 4);
  frame.writeUInt32LE(arrays.all.length, 8);
  frame.write(text, HEAD);
  const parts = arrays.all.map((array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
  if (!inside) return [frame, ...parts];
  let at = HEAD + textBytes;
  for (const part of parts) {
    frame.set(part, at);
    at += part.byteLength;
  }
  return [frame];
}

/** The arrays of one message, in order, and their bytes. */
class Arrays {
  readonly all: Packed[] = [];
  bytes = 0;

  /**
   * The same value with a placeholder for each array. Only objects with an array are copied: a replacer function that
   * JSON calls for every value would cost more than the rest of a message.
   */
  takenFrom(value: unknown): unknown {
    if (typeof value !== 'object' || value === null) return value;
    if (ArrayBuffer.isView(value)) return this.#take(value as Packed);
    if (Array.isArray(value)) {
      // `for in` would make a list of its keys.
      const items: readonly unknown[] = value;
      const taken = items.map((item) => this.takenFrom(item));
      return taken.some((item, at) => item !== items[at]) ? taken : items;
    }
    const fields = value as Record<string, unknown>;
    let copy: Record<string, unknown> | undefined;
    for (const key in fields) {
      const field = fields[key];
      const left = this.takenFrom(field);
      if (left === field) continue;
      copy ??= { ...fields };
      copy[key] = left;
    }
    return copy ?? value;
  }

  #take(array: Packed): Placeholder {
    const placeholder = { $: kindOf(array), at: this.bytes, bytes: array.byteLength };
    this.all.push(array);
    this.bytes += array.byteLength;
    return placeholder;
  }
}

/** Reassembles frames from chunks of any size. It keeps no reference to a chunk, and overwrites with zeros what it has read, chunks too. */
export class FrameReader {
  readonly #message: (raw: unknown) => void;
  /** The beginning of a frame, `#have` bytes of it. */
  #partial = Buffer.alloc(0);
  #have = 0;
  /** A frame that is complete but for its arrays. */
  #large: LargeFrame | undefined;
  #broken = false;

  constructor(message: (raw: unknown) => void) {
    this.#message = message;
  }

  push(chunk: Uint8Array): void {
    let piece = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    while (piece.length > 0 && !this.#broken) {
      piece = this.#large
        ? this.#fill(this.#large, piece)
        : this.#have > 0
          ? this.#complete(piece)
          : this.#whole(piece);
    }
    chunk.fill(0);
  }

  /** Reads a frame that is completely in the piece, or stores its beginning. Returns the rest. */
  #whole(piece: Buffer): Buffer {
    const bytes = frameBytes(piece, piece.length);
    if (bytes === undefined || bytes > piece.length) return this.#keep(piece);
    this.#read(piece, bytes);
    return piece.subarray(bytes);
  }

  /** Appends to the started frame, up to its end, or to where its long arrays begin. Returns the rest. */
  #complete(piece: Buffer): Buffer {
    const rest = this.#keep(piece);
    const bytes = frameBytes(this.#partial, this.#have);
    if (bytes === undefined || this.#have < (storedBytes(this.#partial, this.#have) ?? 0)) return rest;
    const frame = this.#partial;
    this.#partial = Buffer.alloc(0);
    if (this.#have === bytes) this.#read(frame, bytes);
    else this.#begin(frame, bytes);
    this.#have = 0;
    frame.fill(0);
    return rest;
  }

  /** Stores what is wanted of a frame before it can be read. Returns the rest. */
  #keep(piece: Buffer): Buffer {
    const head = this.#have > 0 ? this.#partial : piece;
    const stored = storedBytes(head, this.#have > 0 ? this.#have : piece.length) ?? HEAD;
    if (stored === Infinity) {
      this.#break();
      return piece;
    }
    if (this.#partial.length < stored) {
      const longer = Buffer.allocUnsafeSlow(stored);
      this.#partial.copy(longer, 0, 0, this.#have);
      this.#partial.fill(0);
      this.#partial = longer;
    }
    const taken = Math.min(piece.length, stored - this.#have);
    piece.copy(this.#partial, this.#have, 0, taken);
    this.#have += taken;
    return piece.subarray(taken);
  }

  /** `frame`: all of it but its arrays. */
  #begin(frame: Buffer, bytes: number): void {
    const targets: { at: number; memory: Uint8Array }[] = [];
    try {
      const raw = withArrays(JSON.parse(frame.toString('utf8', HEAD)), (placeholder) => {
        const array = emptyArray(placeholder);
        targets.push({ at: placeholder.at, memory: new Uint8Array(array.buffer) });
        return array;
      });
      this.#large = new LargeFrame(raw, targets, bytes - frame.length);
    } catch {
      this.#break();
    }
  }

  #fill(large: LargeFrame, piece: Buffer): Buffer {
    const taken = large.take(piece);
    if (large.complete) {
      this.#large = undefined;
      this.#message(large.raw);
    }
    return piece.subarray(taken);
  }

  #read(frame: Buffer, bytes: number): void {
    const message = unpack(frame, bytes);
    if (message === undefined) this.#break();
    else this.#message(message.raw);
  }

  #break(): void {
    this.#broken = true;
    this.#message(undefined);
  }
}

/** The frame's length with its header; undefined while there are too few bytes; Infinity: invalid. */
function frameBytes(buffer: Buffer, have: number): number | undefined {
  if (have < HEAD) return undefined;
  const bytes = 4 + buffer.readUInt32LE(0);
  return bytes < HEAD || bytes > MOST_BYTES ? Infinity : bytes;
}

/** Of these, what is stored before any of it is read: all, or all but arrays that are long. Undefined and Infinity as above. */
function storedBytes(buffer: Buffer, have: number): number | undefined {
  const bytes = frameBytes(buffer, have);
  if (bytes === undefined || bytes === Infinity) return bytes;
  const textEnd = HEAD + buffer.readUInt32LE(4);
  return buffer.readUInt32LE(8) > 0 && bytes - textEnd > COPY_BYTES ? textEnd : bytes;
}

function unpack(frame: Buffer, bytes: number): { readonly raw: unknown } | undefined {
  const textEnd = HEAD + frame.readUInt32LE(4);
  if (textEnd > bytes) return undefined;
  try {
    const raw: unknown = JSON.parse(frame.toString('utf8', HEAD, textEnd));
    return {
      raw:
        frame.readUInt32LE(8) === 0
          ? raw
          : withArrays(raw, (placeholder) => arrayOf(placeholder, frame.subarray(textEnd, bytes))),
    };
  } catch {
    return undefined;
  }
}

/** The typed arrays that a message may have. */
type Packed = Uint8Array | Uint32Array | Float32Array | Float64Array;

const KINDS = { u8: Uint8Array, u32: Uint32Array, f32: Float32Array, f64: Float64Array } as const;

/** What stands in a frame's text for an array. `at` and `bytes`: where it lies in the arrays' bytes. */
interface Placeholder {
  readonly $: keyof typeof KINDS;
  readonly at: number;
  readonly bytes: number;
}

/** The same value with its arrays inserted in place. Throws if they are missing. */
function withArrays(value: unknown, make: (placeholder: Placeholder) => Packed): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if ('$' in value) return make(value as Placeholder);
  const fields = value as Record<string, unknown>;
  for (const key of Object.keys(fields))
    if (typeof fields[key] === 'object') fields[key] = withArrays(fields[key], make);
  return fields;
}

/** Its bytes are copied out of `arrays`. Throws if they are not all there, before any memory is taken for them. */
function arrayOf(placeholder: Placeholder, arrays: Uint8Array): Packed {
  const { at, bytes } = placeholder;
  if (!(at >= 0 && bytes >= 0 && at + bytes <= arrays.length)) throw new RangeError('an array beyond the frame');
  const array = emptyArray(placeholder);
  new Uint8Array(array.buffer).set(arrays.subarray(at, at + bytes));
  return array;
}

/** Of zeros. Throws if there is no such kind or length. */
function emptyArray({ $: kind, bytes }: Placeholder): Packed {
  return new KINDS[kind](bytes / KINDS[kind].BYTES_PER_ELEMENT);
}

/** How a placeholder names its kind. Throws a TypeError for an array that no message may have. */
function kindOf(array: Packed): keyof typeof KINDS {
  for (const kind of ['u8', 'u32', 'f32', 'f64'] as const) if (array instanceof KINDS[kind]) return kind;
  throw new TypeError('an array that no message may have');
}

/** A frame whose arrays are long: each of its bytes is copied into its array as it comes, so that no single step copies them all. */
class LargeFrame {
  readonly raw: unknown;
  /** The memory of the arrays, in the frame's order. */
  readonly #targets: readonly Uint8Array[];
  #index = 0;
  /** In the target with this index. */
  #at = 0;

  /** `bytes`: of all arrays. Throws if the targets are not these bytes, side by side. */
  constructor(raw: unknown, targets: readonly { readonly at: number; readonly memory: Uint8Array }[], bytes: number) {
    let end = 0;
    const sorted = [...targets].sort((a, b) => a.at - b.at);
    for (const { at, memory } of sorted) {
      if (at !== end) throw new RangeError('arrays that are not side by side');
      end += memory.length;
    }
    if (end !== bytes) throw new RangeError('arrays of another length');
    this.raw = raw;
    this.#targets = sorted.map(({ memory }) => memory).filter(({ length }) => length > 0);
  }

  get complete(): boolean {
    return this.#index === this.#targets.length;
  }

  /** Takes what it needs of these bytes. Returns how many. */
  take(bytes: Uint8Array): number {
    let taken = 0;
    while (taken < bytes.length) {
      const target = this.#targets[this.#index];
      if (!target) break;
      const count = Math.min(bytes.length - taken, target.length - this.#at);
      target.set(bytes.subarray(taken, taken + count), this.#at);
      taken += count;
      this.#at += count;
      if (this.#at < target.length) continue;
      this.#index += 1;
      this.#at = 0;
    }
    return taken;
  }
}
