/**
 * Checks the header of a GGUF file (ggml's docs/gguf.md) before any other reader opens it, and reports damage.
 *
 * llama.cpp detects most damage itself. This check is for the readers before it, which trust counts and lengths and
 * read zeros past the end of a file. Every count and every length is checked against the file's size here, so the check
 * ends whatever the content.
 */

/** A file's bytes. `read` gives `length` bytes from `offset`; the caller keeps both inside the file. */
export interface FileBytes {
  readonly size: number;
  read(offset: number, length: number): Buffer;
}

export type GgufHead =
  /** `tensors`: how many it holds; 0 in a file that has a vocabulary alone. */
  | {
      readonly kind: 'head';
      readonly architecture: string;
      readonly tensors: number;
      /** Bytes of the file up to the end of its metadata. */
      readonly metadataBytes: number;
      /** Offset of the value of `split.count`, the number of a split model's parts, a uint16; absent: the file has no such key. */
      readonly splitCountAt?: number;
    }
  /** `problem`: one line that follows "the file". */
  | { readonly kind: 'bad'; readonly problem: string };

const MAGIC = 'GGUF';
const VERSIONS: readonly number[] = [2, 3];
/** Magic, version and the two counts. */
const FIXED_BYTES = 24;
/** A key's length, its type and one byte of value; a tensor's name length, dimension count, type and offset. */
const LEAST_ENTRY_BYTES = 13;
const LEAST_TENSOR_BYTES = 24;
const MAX_DIMENSIONS = 4;
/** Names of architectures are shorter, and the name is quoted in a message. */
const MAX_NAME = 64;
/** Of a key, by the format. */
const MAX_KEY = 65_535;

/** Bytes of the value types that have a fixed size, by code. */
const VALUE_BYTES = new Map([1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8].map((bytes, code) => [code, bytes]));
const UINT16 = 2;
const STRING = 8;
const ARRAY = 9;

/** Reads no tensor data. `isFirst`: it is no further part of a split model. Rejects nothing and throws only what `read` throws. */
export function readHead(file: FileBytes, isFirst = true): GgufHead {
  try {
    return walk(file, isFirst);
  } catch (error) {
    if (error instanceof Damage) return { kind: 'bad', problem: error.message };
    throw error;
  }
}

function walk(file: FileBytes, isFirst: boolean): GgufHead {
  const at = new Cursor(file);
  if (file.size < FIXED_BYTES) throw new Damage(`is no model: it has ${file.size} bytes`);
  if (at.text(MAGIC.length) !== MAGIC) throw new Damage('is no GGUF model');
  const version = at.uint32();
  if (!VERSIONS.includes(version)) throw new Damage(`is of GGUF version ${version}; versions 2 and 3 can be read`);
  const tensors = at.count(LEAST_TENSOR_BYTES);
  const entries = at.count(LEAST_ENTRY_BYTES);
  let architecture = '';
  let alignment = 32;
  let splitCountAt: number | undefined;
  for (let i = 0; i < entries; i += 1) {
    const key = at.string(MAX_KEY);
    const type = at.uint32();
    if (key === 'split.count' && type === UINT16) splitCountAt = at.offset;
    if (key === 'general.architecture' && type === STRING) architecture = at.string(MAX_KEY).slice(0, MAX_NAME);
    else if (key === 'general.alignment' && VALUE_BYTES.get(type) === 4) alignment = at.uint32();
    else skipValue(at, type);
  }
  const metadataBytes = at.offset;
  if (architecture === '' && isFirst) throw new Damage('is damaged: it names no architecture');
  if (alignment === 0) throw new Damage('is damaged: its tensors are aligned to 0 bytes');
  const furthest = furthestTensor(at, tensors);
  const end = Math.ceil(at.offset / alignment) * alignment + furthest;
  if (tensors > 0 && end >= file.size) {
    throw new Damage(`is cut off: it has ${file.size} bytes and a tensor at byte ${end}. Copy or download it again`);
  }
  return { kind: 'head', architecture, tensors, metadataBytes, ...(splitCountAt !== undefined && { splitCountAt }) };
}

function skipValue(at: Cursor, type: number): void {
  if (type === STRING) at.skip(at.uint64());
  else if (type === ARRAY) skipArray(at);
  else at.skip(valueBytes(type));
}

/** Arrays of arrays are allowed by the format and refused by llama.cpp. */
function skipArray(at: Cursor): void {
  const type = at.uint32();
  if (type !== STRING) {
    at.skip(at.uint64() * valueBytes(type));
    return;
  }
  const strings = at.count(8);
  for (let i = 0; i < strings; i += 1) at.skip(at.uint64());
}

function valueBytes(type: number): number {
  const bytes = VALUE_BYTES.get(type) ?? 0;
  if (bytes === 0) throw new Damage('is damaged: it holds a value of a type that GGUF does not have');
  return bytes;
}

/** Where the last tensor's data begins, counted from where tensor data begins. */
function furthestTensor(at: Cursor, tensors: number): number {
  let furthest = 0;
  for (let i = 0; i < tensors; i += 1) {
    at.skip(at.uint64());
    const dimensions = at.uint32();
    if (dimensions > MAX_DIMENSIONS) throw new Damage('is damaged: a tensor has more than 4 dimensions');
    at.skip(dimensions * 8 + 4);
    furthest = Math.max(furthest, at.uint64());
  }
  return furthest;
}

class Damage extends Error {}

/** Bytes read from the file at a time. */
const WINDOW = 1 << 17;

/** The current position. Reading past the end of the file is damage. */
class Cursor {
  readonly #file: FileBytes;
  #window: Buffer = Buffer.alloc(0);
  #windowAt = 0;
  offset = 0;

  constructor(file: FileBytes) {
    this.#file = file;
  }

  uint32(): number {
    return this.#window.readUInt32LE(this.#take(4));
  }

  /** As a double: exact below 2^53, and far past any file above it. */
  uint64(): number {
    const at = this.#take(8);
    return this.#window.readUInt32LE(at) + 2 ** 32 * this.#window.readUInt32LE(at + 4);
  }

  /** A number of things with at least `bytes` each. */
  count(bytes: number): number {
    const count = this.uint64();
    if (count * bytes > this.#file.size) throw new Damage('is damaged: its head counts more than the file can hold');
    return count;
  }

  /** At most so many bytes: a damaged length may be nearly as large as the file. */
  string(most: number): string {
    const length = this.uint64();
    if (length > most) throw new Damage('is damaged: a name in its head is too long');
    return this.text(length);
  }

  text(length: number): string {
    const at = this.#take(length);
    return this.#window.toString('utf8', at, at + length);
  }

  skip(bytes: number): void {
    this.#holds(bytes);
    this.offset += bytes;
  }

  /** Where the next bytes are in the window, which has all of them. A vocabulary has many lengths: nothing is allocated for one. */
  #take(length: number): number {
    this.#holds(length);
    const from = this.offset - this.#windowAt;
    this.offset += length;
    if (from >= 0 && from + length <= this.#window.length) return from;
    this.#windowAt = this.offset - length;
    const bytes = Math.min(Math.max(length, WINDOW), this.#file.size - this.#windowAt);
    this.#window = this.#file.read(this.#windowAt, bytes);
    return 0;
  }

  #holds(bytes: number): void {
    if (this.offset + bytes <= this.#file.size) return;
    throw new Damage(
      `is cut off or damaged: its head goes past its ${this.#file.size} bytes. Copy or download it again`,
    );
  }
}
