/**
 * A file of content that is encrypted piece by piece, so that it is written and read without being whole in memory, and grows by
 * pieces that are each durable.
 *
 *     piece: head of 64 bytes | content, AES-256-GCM | tag, 16 bytes
 *     head:  state, version | length | line | tokens: prompt, cached, completion | picodollars | attempt | nonce | index
 *
 * Each file has a key of its own (file-store.ts). Nonces are random. All of the head but its state is authenticated, so that pieces can
 * neither be changed nor exchanged. The state is changed in place:
 *
 *     written ──its usage record is durable──> kept
 *        └──────there is no such record──────> void: readers skip it
 *
 * A crash leaves at most incomplete pieces at the end. `continue` finds these, and what is damaged between intact pieces; `repair` cuts the
 * former off, and covers the latter with a void piece. After a void piece indexes may be left out.
 */
import { createCipheriv, randomBytes, webcrypto } from 'node:crypto';
import { constants, writeSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import type { TokenCounts } from '../domain/money.js';

/** The most bytes of content in one piece. */
export const PIECE_BYTES = 1024 * 1024;

const HEAD_BYTES = 64;
const TAG_BYTES = 16;
const LEAST_BYTES = HEAD_BYTES + TAG_BYTES;
const NONCE_BYTES = 12;
const VERSION = 1;

const STATES = ['written', 'kept', 'void'] as const;
export type PieceState = (typeof STATES)[number];

/** Where a head has each field. The state is its first byte. */
const AT = {
  version: 1,
  length: 4,
  line: 8,
  prompt: 12,
  cached: 16,
  completion: 20,
  price: 24,
  attempt: 32,
  nonce: 48,
  index: 60,
} as const;

/** What a piece is about: the answer to one line of a batch, and what it cost. */
export interface PieceFacts {
  /** From 1; 0: it answers no line. */
  readonly line: number;
  /** The id of the usage record, a UUID; empty: there is none. */
  readonly attempt: string;
  readonly used: TokenCounts;
  readonly picodollars: bigint;
}

export interface Piece {
  readonly content: Uint8Array;
  readonly state: PieceState;
  readonly facts?: PieceFacts;
}

export interface PieceHead extends PieceFacts {
  readonly offset: number;
  readonly state: PieceState;
  /** Bytes of its content. */
  readonly length: number;
  readonly index: number;
}

/** `isDamaged`: it cannot be read; then `head` is what its head seems to say, if it is one. */
export type FoundPiece = (head: PieceHead | undefined, isDamaged: boolean) => void;

/** An encrypted file that was damaged or cut, or is missing. */
export class DamagedPieces extends Error {
  override readonly name = 'DamagedPieces';
}

const CHANGED = 'an encrypted file was changed, or its key is another one';

/** One such file. `close` is the owner's. All calls reject with the system's error. */
export class PieceFile {
  readonly #handle: FileHandle;
  readonly #key: Uint8Array;
  /** The same, once something was opened. */
  #imported: Promise<webcrypto.CryptoKey> | undefined;
  /** Where the next piece begins, and its index. */
  #end = 0;
  #count = 0;
  #contentBytes = 0;
  /** What the next write appends, its offsets, and the write before it. */
  #group: Piece[] = [];
  #written: Promise<number[]> | undefined;
  #last: Promise<unknown> = Promise.resolve();
  /** There may be pieces behind the end, of a write that failed. */
  #isTorn = false;
  /** Heads of void pieces for damaged places, and these. */
  readonly #covers: (readonly [Buffer, number])[] = [];

  private constructor(handle: FileHandle, key: Uint8Array) {
    this.#handle = handle;
    this.#key = key;
  }

  /** A new file; one of this name must not exist. `key`: 32 bytes. */
  static async create(path: string, key: Uint8Array): Promise<PieceFile> {
    const { O_RDWR, O_CREAT, O_EXCL } = constants;
    return new PieceFile(await open(path, O_RDWR | O_CREAT | O_EXCL, 0o600), key);
  }

  /** Opens a file for reading alone. */
  static async read(path: string, key: Uint8Array): Promise<PieceFile> {
    return new PieceFile(await openPresent(path, constants.O_RDONLY), key);
  }

  /** Opens a file that grows on once it is repaired; changes nothing. `found` is called for each piece and damaged place, in order. */
  static async continue(path: string, key: Uint8Array, found: FoundPiece): Promise<PieceFile> {
    const file = new PieceFile(await openPresent(path, constants.O_RDWR), key);
    try {
      await file.#findEnd(found);
      return file;
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  async #findEnd(found: FoundPiece): Promise<void> {
    const window = await Window.of(this.#handle);
    let before: Pick<PieceHead, 'index' | 'state'> | undefined;
    for (;;) {
      const head = await window.head(this.#end);
      if (head && follows(head, before) && (head.state === 'void' || (await this.#isIntact(head, window)))) {
        found(head, false);
        this.#end = endOf(head);
        this.#count = head.index + 1;
        this.#contentBytes += head.state === 'void' ? 0 : head.length;
        before = head;
        continue;
      }
      const next = await this.#nextIntact();
      if (head ?? next) found(head, true);
      if (next === undefined) break;
      this.#covers.push([newHead('void', next.offset - this.#end - LEAST_BYTES, this.#count), this.#end]);
      this.#end = next.offset;
      before = { state: 'void', index: next.index - 1 };
    }
    this.#isTorn = true;
  }

  /** Covers what is damaged, and cuts off what is behind the last intact piece. */
  async repair(): Promise<void> {
    for (const [head, offset] of this.#covers.splice(0)) await this.#write([head], offset);
    await this.#cutOff();
  }

  async #cutOff(): Promise<void> {
    if (this.#isTorn) await this.#handle.truncate(this.#end);
    this.#isTorn = false;
  }

  /** The next intact piece after a damaged place at the end of what was read; undefined if there is none. */
  async #nextIntact(): Promise<PieceHead | undefined> {
    const [window, whole] = [await Window.of(this.#handle), await Window.of(this.#handle)];
    for (let at = this.#end + LEAST_BYTES; at + LEAST_BYTES <= window.size;) {
      const bytes = await window.at(at, Math.min(WINDOW_BYTES, window.size - at));
      const starts = bytes.length - HEAD_BYTES + 1;
      for (let i = 0; i < starts; i += 1) {
        const further = bytes.readUInt32LE(i + AT.index) - this.#count;
        const isLikely = bytes[i + AT.version] === VERSION && further > 0 && further <= window.size / LEAST_BYTES;
        const head = isLikely ? await whole.head(at + i) : undefined;
        if (head && (await this.#isIntact(head, whole))) return head;
      }
      at += starts;
    }
    return undefined;
  }

  /** Bytes of the content of all pieces that are not void. */
  get contentBytes(): number {
    return this.#contentBytes;
  }

  /**
   * Appends pieces; all that come while others are written in one write, with one sync. Resolves with their offsets once they are durable.
   * What a failed write left is cut off before the next one: its pieces may be intact, and come after a shorter one.
   */
  async append(pieces: readonly Piece[]): Promise<number[]> {
    const from = this.#group.length;
    this.#group.push(...pieces);
    const written = (this.#written ??= this.#last.then(() => this.#appendGroup()));
    this.#last = written.catch(() => undefined);
    return (await written).slice(from, from + pieces.length);
  }

  async #appendGroup(): Promise<number[]> {
    const pieces = this.#group.splice(0);
    this.#written = undefined;
    let at = this.#end;
    const offsets: number[] = [];
    const parts: Uint8Array[] = [];
    pieces.forEach((piece, i) => {
      offsets.push(at);
      const sealed = this.#seal(piece, this.#count + i);
      parts.push(...sealed);
      for (const { length } of sealed) at += length;
    });
    await this.#cutOff();
    this.#isTorn = true;
    await this.#write(parts, this.#end);
    await this.sync();
    this.#isTorn = false;
    this.#end = at;
    this.#count += pieces.length;
    for (const { content } of pieces) this.#contentBytes += content.length;
    return offsets;
  }

  /**
   * Appends a piece before it returns; {@link sync} and {@link finish} make it durable. Throws the system's error, after which the next
   * call writes over what was left.
   */
  appendSync(piece: Piece): void {
    let at = this.#end;
    for (const part of this.#seal(piece, this.#count))
      for (let rest: Uint8Array = part; rest.length > 0;) {
        const written = writeSync(this.#handle.fd, rest, 0, rest.length, at);
        if (written === 0) throw new Error('nothing was written');
        rest = rest.subarray(written);
        at += written;
      }
    this.#end = at;
    this.#count += 1;
    this.#contentBytes += piece.content.length;
  }

  /** Makes durable what was written before. */
  async sync(): Promise<void> {
    await this.#handle.datasync();
  }

  /** Sets the states of pieces; durable once it resolves. */
  async mark(
    heads: readonly { readonly offset: number; readonly length: number }[],
    state: 'kept' | 'void',
  ): Promise<void> {
    if (heads.length === 0) return;
    for (const { offset, length } of heads) {
      await this.#write([Buffer.of(STATES.indexOf(state))], offset);
      if (state === 'void') this.#contentBytes -= length;
    }
    await this.#handle.datasync();
  }

  /** No piece follows: what a failed call of `append` left is cut off. */
  async finish(): Promise<void> {
    await this.#handle.truncate(this.#end);
    await this.#handle.datasync();
  }

  /**
   * The content of all pieces that are not void, one at a time, each valid until the next one is asked for; `expected` bytes in all, if
   * that is known. Throws {@link DamagedPieces} if a piece was changed, there are fewer bytes, or the file was deleted, as `isThere` says.
   */
  async *contents(expected?: number, isThere: () => boolean = () => true): AsyncGenerator<Buffer> {
    let bytes = 0;
    const window = await Window.of(this.#handle);
    let before: PieceHead | undefined;
    for (let at: number | undefined = 0; at !== undefined;) {
      // Short pieces that one read brought are opened together, which takes a tenth of the time.
      const opened: Promise<Buffer>[] = [];
      do {
        const head = await window.head(at);
        at = head && follows(head, before) ? endOf(head) : undefined;
        if (at === undefined || head === undefined) break;
        before = head;
        if (head.state === 'void') continue;
        bytes += head.length;
        const opening = this.#open(await window.piece(head));
        // It is awaited later, or not at all.
        opening.catch(() => undefined);
        opened.push(opening);
      } while (window.has(at));
      try {
        for (const opening of opened) {
          if (!isThere()) throw new DamagedPieces('an encrypted file was deleted');
          const content = await opening;
          yield content;
          content.fill(0);
        }
      } finally {
        for (const opening of opened) opening.then((content) => content.fill(0)).catch(() => undefined);
      }
    }
    if (expected !== undefined && bytes !== expected) throw new DamagedPieces('an encrypted file is incomplete');
  }

  async #isIntact(head: PieceHead, window: Window): Promise<boolean> {
    try {
      (await this.#open(await window.piece(head))).fill(0);
      return true;
    } catch (error) {
      if (error instanceof DamagedPieces) return false;
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }

  #seal({ content, state, facts }: Piece, index: number): [Buffer, Buffer, Buffer] {
    const head = newHead(state, content.length, index);
    const nonce = randomBytes(NONCE_BYTES);
    nonce.copy(head, AT.nonce);
    if (facts) {
      const { line, attempt, used, picodollars } = facts;
      head.writeUInt32LE(line, AT.line);
      head.writeUInt32LE(used.promptTokens, AT.prompt);
      head.writeUInt32LE(used.cachedTokens, AT.cached);
      head.writeUInt32LE(used.completionTokens, AT.completion);
      head.writeBigUInt64LE(picodollars, AT.price);
      Buffer.from(attempt.replaceAll('-', ''), 'hex').copy(head, AT.attempt);
    }
    const cipher = createCipheriv('aes-256-gcm', this.#key, nonce);
    cipher.setAAD(head.subarray(1));
    const sealed = cipher.update(content);
    cipher.final();
    return [head, sealed, cipher.getAuthTag()];
  }

  /** `bytes`: one whole piece. A decipher would leave a copy in memory. */
  async #open(bytes: Buffer): Promise<Buffer> {
    const { subtle } = webcrypto;
    const key = await (this.#imported ??= subtle.importKey('raw', this.#key, 'AES-GCM', false, ['decrypt']));
    const [iv, additionalData] = [bytes.subarray(AT.nonce, AT.nonce + NONCE_BYTES), bytes.subarray(1, HEAD_BYTES)];
    const opening = subtle.decrypt({ name: 'AES-GCM', iv, additionalData }, key, bytes.subarray(HEAD_BYTES));
    const content: ArrayBuffer = await opening.catch(() => Promise.reject(new DamagedPieces(CHANGED)));
    return Buffer.from(content);
  }

  async #write(parts: readonly Uint8Array[], offset: number): Promise<void> {
    const bytes = parts.length === 1 ? (parts[0] ?? new Uint8Array()) : Buffer.concat(parts);
    for (let done = 0; done < bytes.length;) {
      const { bytesWritten } = await this.#handle.write(bytes, done, bytes.length - done, offset + done);
      if (bytesWritten === 0) throw new Error('nothing was written');
      done += bytesWritten;
    }
  }
}

async function openPresent(path: string, flags: number): Promise<FileHandle> {
  try {
    return await open(path, flags);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    throw new DamagedPieces('an encrypted file is missing');
  }
}

/** Bytes that are read at a time, so that short pieces do not cost a read each. */
const WINDOW_BYTES = 256 * 1024;

/** Reads a file from its beginning to its end through one buffer. */
class Window {
  /** Bytes of the file. */
  readonly size: number;
  readonly #handle: FileHandle;
  #buffer = Buffer.allocUnsafeSlow(0);
  #from = 0;
  #length = 0;

  private constructor(handle: FileHandle, size: number) {
    this.#handle = handle;
    this.size = size;
  }

  static async of(handle: FileHandle): Promise<Window> {
    return new Window(handle, (await handle.stat()).size);
  }

  /** The head of a complete piece at a place; undefined if there is none. */
  async head(offset: number): Promise<PieceHead | undefined> {
    if (offset + LEAST_BYTES > this.size) return undefined;
    const head = headOf(await this.at(offset, HEAD_BYTES), offset);
    return head && endOf(head) <= this.size ? head : undefined;
  }

  /** Whether a whole piece at a place was read with the last one. */
  has(offset: number): boolean {
    const at = offset - this.#from;
    const head =
      at >= 0 && at + HEAD_BYTES <= this.#length && headOf(this.#buffer.subarray(at, at + HEAD_BYTES), offset);
    return head ? endOf(head) <= this.#from + this.#length : false;
  }

  /** A whole piece, valid until the next call. */
  piece(head: PieceHead): Promise<Buffer> {
    return this.at(head.offset, endOf(head) - head.offset);
  }

  /** Valid until the next call. */
  async at(offset: number, length: number): Promise<Buffer> {
    if (offset < this.#from || offset + length > this.#from + this.#length) await this.#fill(offset, length);
    return this.#buffer.subarray(offset - this.#from, offset - this.#from + length);
  }

  async #fill(offset: number, length: number): Promise<void> {
    const wanted = Math.max(length, WINDOW_BYTES);
    if (this.#buffer.length < wanted) this.#buffer = Buffer.allocUnsafeSlow(wanted);
    this.#from = offset;
    this.#length = 0;
    while (this.#length < length) {
      const { bytesRead } = await this.#handle.read(
        this.#buffer,
        this.#length,
        this.#buffer.length - this.#length,
        offset + this.#length,
      );
      if (bytesRead === 0) throw new DamagedPieces('an encrypted file is incomplete');
      this.#length += bytesRead;
    }
  }
}

function endOf({ offset, length }: { readonly offset: number; readonly length: number }): number {
  return offset + LEAST_BYTES + length;
}

/** Whether a piece is the next one after another. */
function follows({ index }: PieceHead, before: Pick<PieceHead, 'index' | 'state'> | undefined): boolean {
  const next = (before?.index ?? -1) + 1;
  return index === next || (before?.state === 'void' && index > next);
}

/** A head without facts and nonce. */
function newHead(state: PieceState, length: number, index: number): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head[0] = STATES.indexOf(state);
  head[AT.version] = VERSION;
  head.writeUInt32LE(length, AT.length);
  head.writeUInt32LE(index, AT.index);
  return head;
}

/** Undefined if these bytes are no head. */
function headOf(head: Buffer, offset: number): PieceHead | undefined {
  const state = STATES[head[0] ?? STATES.length];
  if (state === undefined || head[AT.version] !== VERSION) return undefined;
  const id = head.toString('hex', AT.attempt, AT.nonce);
  return {
    offset,
    state,
    length: head.readUInt32LE(AT.length),
    index: head.readUInt32LE(AT.index),
    line: head.readUInt32LE(AT.line),
    used: {
      promptTokens: head.readUInt32LE(AT.prompt),
      cachedTokens: head.readUInt32LE(AT.cached),
      completionTokens: head.readUInt32LE(AT.completion),
    },
    picodollars: head.readBigUInt64LE(AT.price),
    attempt: /^0+$/.test(id) ? '' : id.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5'),
  };
}
