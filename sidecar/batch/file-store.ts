/**
 * Files of callers for batches, and the answers of batches: the one place in which the sidecar keeps content. Each file is encrypted with a
 * key of its own (pieces.ts), which its record has, sealed by the operator's key. To delete a file is to destroy that record.
 *
 *     create ──> pieces are appended ──finish──> ready ──deleted, or its time is over──> gone
 *                     └─ a crash: an upload has no record yet, so its content is removed at the next start
 *
 * The answers of a batch have a record from the beginning, whose file is `open`, and are not shown until the batch has ended.
 *
 * With `batch.store: memory` the operator's key is one of this process, and the content is in the memory of the machine: nothing of it
 * can be read after this process has ended.
 */
import { randomBytes } from 'node:crypto';
import { statfsSync } from 'node:fs';
import { lstat, mkdir, readdir, rm, stat } from 'node:fs/promises';
import { freemem } from 'node:os';
import { join } from 'node:path';
import { every, type Clock } from '../lib/clock.js';
import { syncFolder } from '../lib/replace-file.js';
import { DamagedPieces, PieceFile, type FoundPiece } from './pieces.js';
import { Records, type StoredRecord, type Vault } from './records.js';

/** The longest file, bytes, and the most bytes and files of one account. */
export const FILE_BYTES = 512 * 1024 * 1024;
export const ACCOUNT_BYTES = 2 * 1024 * 1024 * 1024;
export const ACCOUNT_FILES = 1000;

/** An upload is made durable when so many bytes were written since the last time, so that no call has to write a whole file to the disk. */
const SYNC_BYTES = 16 * 1024 * 1024;

/** The system is asked for its free space at least so often, ms, if files are stored. */
const SPACE_MS = 1000;

/** How often it is looked which files' time is over, ms. */
const SWEEP_MS = 60_000;

/** This much of a disk, or of the host's memory, stays free, bytes: usage records are written to the disk too. */
const RESERVE_BYTES = 256 * 1024 * 1024;

export interface FileRecord extends StoredRecord {
  readonly purpose: 'batch' | 'batch_output';
  /** Of its content; 0 while it is open. */
  readonly bytes: number;
  /** Unix time, s. */
  readonly createdAt: number;
  readonly expiresAt: number;
  /** A batch appends to it. */
  readonly open: boolean;
}

/** What a record's `sealed` has. */
interface Secrets {
  /** Base64. */
  readonly key: string;
  readonly name: string;
}

export interface FileStoreOptions {
  readonly clock: Clock;
  readonly date: () => Date;
  readonly vault: Vault;
  /** The folders of records and of content. */
  readonly dir: string;
  readonly contentDir: string;
  /** `batch.maxBytes`. */
  readonly maxBytes: number;
  /** The content of another process can never be read. */
  readonly isMemory: boolean;
  /** A file could not be deleted; it is tried again. */
  readonly onFault: (fault: unknown) => void;
}

/** Why a file is not taken. */
export type NoRoom = 'account' | 'store';

/** The operator's key does not open what is stored. */
export class WrongKey extends Error {
  override readonly name = 'WrongKey';
}

export class FileStore {
  readonly #options: FileStoreOptions;
  readonly #records: Records<FileRecord>;
  /** Bytes and files of each account, with uploads that have not ended and open files; and the bytes of all. */
  readonly #used = new Map<string, { bytes: number; files: number }>();
  #bytes = 0;
  /** What the system said last of its space: when, and at how many bytes of all. */
  #space = { at: -Infinity, bytes: 0, hasSpace: false };
  /** Bytes of open files. */
  readonly #open = new Map<string, number>();
  /** Files that are read by a batch, and how often. */
  readonly #held = new Map<string, number>();
  #cancelSweep: () => void = () => undefined;
  #sweeping: Promise<void> | undefined;

  private constructor(options: FileStoreOptions, records: Records<FileRecord>) {
    this.#options = options;
    this.#records = records;
  }

  /**
   * Reads the records, and removes content without one. Rejects with {@link WrongKey} if the operator's key opens not all of them, and with
   * the system's error if a folder cannot be used.
   */
  static async open(options: FileStoreOptions): Promise<FileStore> {
    const { dir, contentDir, isMemory, vault } = options;
    await mkdir(contentDir, { recursive: true, mode: 0o700 });
    if (isMemory) await checkOwn(contentDir);
    const records = await Records.open<FileRecord>(dir);
    const lost = [...records.all()].filter(({ sealed, id }) => vault.unseal(sealed, id) === undefined);
    if (lost.length > 0 && !isMemory) throw new WrongKey(`${lost.length} stored files cannot be opened`);
    for (const { id } of lost) await records.remove(id);
    for (const name of await readdir(contentDir))
      if (records.get(name) === undefined) await rm(join(contentDir, name), { recursive: true, force: true });
    const store = new FileStore(options, records);
    for (const { id, account, bytes, open } of records.all()) {
      store.grows(account, bytes, 1);
      // With what else is in it; known better once its batch runs.
      if (open) store.#counts(account, id, (await stat(store.#contentOf(id)).catch(() => undefined))?.size ?? 0);
    }
    store.#cancelSweep = every(options.clock, SWEEP_MS, () => store.sweep());
    return store;
  }

  /** Undefined if this account has no such file, or its time is over. */
  find(account: string, id: string): FileRecord | undefined {
    const record = this.#records.get(id);
    return record?.account === account && !record.open && record.expiresAt > this.now ? record : undefined;
  }

  has(id: string): boolean {
    return this.#records.get(id) !== undefined;
  }

  /** An account's ready files, the newest first. */
  list(account: string): FileRecord[] {
    const ready = [...this.#records.all()].filter(({ id }) => this.find(account, id) !== undefined);
    return ready.sort((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? 1 : -1));
  }

  /** What the caller named it. */
  nameOf(record: FileRecord): string {
    return this.#secretsOf(record).name;
  }

  /** Begins a file of an account. Its record is written by {@link NewFile.finish}. */
  async create(account: string): Promise<NewFile> {
    const id = `file-${randomBytes(16).toString('hex')}`;
    const key = randomBytes(32);
    const pieces = await PieceFile.create(this.#contentOf(id), key);
    return new NewFile(this, id, account, key, pieces);
  }

  /** Why an account may not store so many bytes more, and so many files; undefined if it may. Throws the system's error. */
  roomFor(account: string, bytes: number, files = 1): NoRoom | undefined {
    const own = this.#used.get(account) ?? { bytes: 0, files: 0 };
    if (own.bytes + bytes > ACCOUNT_BYTES || own.files + files > ACCOUNT_FILES) return 'account';
    return this.#bytes + bytes > this.#options.maxBytes || !this.#hasSpace() ? 'store' : undefined;
  }

  /** Whether the disk, or the memory, has room for more, as of at most SPACE_MS or SYNC_BYTES ago. Throws the system's error. */
  #hasSpace(): boolean {
    const { clock, contentDir, isMemory } = this.#options;
    const { at, bytes } = this.#space;
    if (clock.now() - at >= SPACE_MS || this.#bytes - bytes >= SYNC_BYTES) {
      const { bavail, bsize } = statfsSync(contentDir);
      const free = !isMemory ? bavail * bsize : bavail > 0 ? freemem() : 0;
      this.#space = { at: clock.now(), bytes: this.#bytes, hasSpace: free > RESERVE_BYTES };
    }
    return this.#space.hasSpace;
  }

  /** Opens a ready file for reading; the caller closes it. Undefined if it was deleted meanwhile. */
  async read(record: FileRecord): Promise<PieceFile | undefined> {
    try {
      if (this.has(record.id)) return await PieceFile.read(this.#contentOf(record.id), this.#keyOf(record));
    } catch (error) {
      if (this.has(record.id)) throw error;
    }
    return undefined;
  }

  /** Begins a file that a batch appends to, with its record. */
  async createOpen(account: string, name: string, expiresAt: number): Promise<FileRecord> {
    const created = await this.create(account);
    await created.pieces.close();
    try {
      const record = await this.put(created, { name, purpose: 'batch_output', expiresAt, bytes: 0, open: true });
      this.#open.set(record.id, 0);
      return record;
    } catch (error) {
      await created.discard();
      throw error;
    }
  }

  /** Opens it. `found` is called for each piece that it has. Rejects if it is not there. */
  async continue(id: string, found: FoundPiece): Promise<PieceFile> {
    const record = this.#records.get(id);
    if (record === undefined) throw new DamagedPieces('a stored file is missing');
    const file = await PieceFile.continue(this.#contentOf(id), this.#keyOf(record), found);
    if (record.open) this.#counts(record.account, id, file.contentBytes);
    return file;
  }

  /** An open file has so many bytes more. */
  appended(id: string, bytes: number): void {
    const account = this.#records.get(id)?.account;
    if (account !== undefined) this.#counts(account, id, (this.#open.get(id) ?? 0) + bytes);
  }

  /** It is ready: nothing is appended any more. An empty one is removed. */
  async close(id: string, bytes: number, expiresAt: number): Promise<void> {
    const record = this.#records.get(id);
    if (record === undefined || !record.open) return;
    if (bytes === 0) {
      await this.remove(id);
      return;
    }
    await this.#records.put(Object.assign({}, record, { bytes, expiresAt, open: false }));
    this.#counts(record.account, id, bytes);
    this.#open.delete(id);
  }

  /** Removes open files but for these: no batch appends to them any more. */
  async removeOpen(except: ReadonlySet<string>): Promise<void> {
    for (const { id, open } of [...this.#records.all()]) if (open && !except.has(id)) await this.remove(id);
  }

  /** Deletes a file: once this resolves, nothing can read it. Rejects with the system's error; it is then still there. */
  async remove(id: string): Promise<void> {
    const record = this.#records.get(id);
    if (record && (await this.#records.remove(id))) {
      this.grows(record.account, -(this.#open.get(id) ?? record.bytes), -1);
      this.#open.delete(id);
    }
    await rm(this.#contentOf(id), { force: true });
  }

  /** A file that a batch reads, also if its time is over. */
  held(id: string): FileRecord | undefined {
    return this.isHeld(id) ? this.#records.get(id) : undefined;
  }

  /** A batch reads the file: until `release` its time does not end, and {@link isHeld} is true. */
  hold(id: string): void {
    this.#held.set(id, (this.#held.get(id) ?? 0) + 1);
  }

  release(id: string): void {
    const holders = (this.#held.get(id) ?? 0) - 1;
    if (holders > 0) this.#held.set(id, holders);
    else this.#held.delete(id);
  }

  isHeld(id: string): boolean {
    return this.#held.has(id);
  }

  /** Stops the sweeps. Of a store in memory the content is removed. */
  async end(): Promise<void> {
    this.#cancelSweep();
    await this.#sweeping;
    if (this.#options.isMemory) await rm(this.#options.contentDir, { recursive: true, force: true });
  }

  /** Deletes the files whose time is over. Never rejects. */
  sweep(): Promise<void> {
    this.#sweeping ??= this.#sweep().finally(() => (this.#sweeping = undefined));
    return this.#sweeping;
  }

  /** For {@link NewFile} alone. */
  grows(account: string, bytes: number, files: number): void {
    const used = this.#used.get(account) ?? { bytes: 0, files: 0 };
    used.bytes += bytes;
    used.files += files;
    this.#bytes += bytes;
    if (used.files > 0) this.#used.set(account, used);
    else this.#used.delete(account);
  }

  /** An open file has so many bytes. */
  #counts(account: string, id: string, bytes: number): void {
    this.grows(account, bytes - (this.#open.get(id) ?? 0), 0);
    this.#open.set(id, bytes);
  }

  /** For {@link NewFile} alone. */
  async put(
    { id, account, key }: NewFile,
    { name, ...fields }: Pick<FileRecord, 'purpose' | 'expiresAt' | 'bytes' | 'open'> & { readonly name: string },
  ): Promise<FileRecord> {
    const secrets: Secrets = { key: Buffer.from(key).toString('base64'), name };
    const sealed = this.#options.vault.seal(JSON.stringify(secrets), id);
    const record: FileRecord = { id, account, createdAt: this.now, ...fields, sealed };
    // Of a record the content is there, also after a power failure.
    await syncFolder(this.#options.contentDir);
    await this.#records.put(record);
    return record;
  }

  /** Unix time, s. */
  get now(): number {
    return Math.floor(this.#options.date().getTime() / 1000);
  }

  async #sweep(): Promise<void> {
    for (const { id, expiresAt, open } of [...this.#records.all()]) {
      if (expiresAt > this.now || open || this.isHeld(id)) continue;
      await this.remove(id).catch((fault: unknown) => this.#options.onFault(fault));
    }
  }

  #secretsOf({ sealed, id }: FileRecord): Secrets {
    const text = this.#options.vault.unseal(sealed, id);
    if (text === undefined) throw new WrongKey('a stored file cannot be opened');
    return JSON.parse(text) as Secrets;
  }

  #keyOf(record: FileRecord): Uint8Array {
    return Buffer.from(this.#secretsOf(record).key, 'base64');
  }

  #contentOf(id: string): string {
    return join(this.#options.contentDir, id);
  }
}

/** A file that is being written. Its owner calls `finish` or `discard`. */
export class NewFile {
  readonly id: string;
  readonly account: string;
  readonly key: Uint8Array;
  readonly pieces: PieceFile;
  readonly #store: FileStore;
  #counted = 0;
  #unsynced = 0;
  #pending: Promise<unknown> | undefined;
  /** Kept, since the system names a failure to make content durable once. */
  #fault: unknown;
  #over = false;

  constructor(store: FileStore, id: string, account: string, key: Uint8Array, pieces: PieceFile) {
    this.#store = store;
    this.id = id;
    this.account = account;
    this.key = key;
    this.pieces = pieces;
    store.grows(account, 0, 1);
  }

  /**
   * Appends content, at most a piece, before it returns, and then overwrites the caller's bytes. Returns why it is not taken, or undefined.
   * Throws the system's error, also one of the {@link pending} sync.
   */
  append(content: Uint8Array): NoRoom | undefined {
    if (this.#fault !== undefined) throw this.#fault as Error;
    const refused = this.#store.roomFor(this.account, content.length, 0);
    if (refused !== undefined) return refused;
    this.#store.grows(this.account, content.length, 0);
    this.#counted += content.length;
    this.pieces.appendSync({ content, state: 'kept' });
    content.fill(0);
    this.#unsynced += content.length;
    if (this.#unsynced >= SYNC_BYTES && !this.#pending) {
      this.#unsynced = 0;
      this.#pending = this.pieces
        .sync()
        .catch((fault: unknown) => (this.#fault = fault))
        .finally(() => (this.#pending = undefined));
    }
    return undefined;
  }

  /** Set while a part of what was appended is made durable. Never rejects. */
  get pending(): Promise<unknown> | undefined {
    return this.#pending;
  }

  /** Writes its record: it is ready. */
  async finish({ name, lifeS }: { readonly name: string; readonly lifeS: number }): Promise<FileRecord> {
    await this.#pending;
    if (this.#fault !== undefined) throw this.#fault as Error;
    await this.pieces.finish();
    const bytes = this.pieces.contentBytes;
    const expiresAt = this.#store.now + lifeS;
    const record = await this.#store.put(this, { name, purpose: 'batch', expiresAt, bytes, open: false });
    this.#over = true;
    await this.pieces.close();
    return record;
  }

  /** It is not wanted. Does nothing once it is ready. */
  async discard(): Promise<void> {
    if (this.#over) return;
    this.#over = true;
    this.#store.grows(this.account, -this.#counted, -1);
    await this.pieces.close();
    await this.#store.remove(this.id);
  }
}

/** Another user of the host can make a folder in the memory's file system first, or a link. */
async function checkOwn(dir: string): Promise<void> {
  const found = await lstat(dir);
  if (found.isDirectory() && found.uid === process.getuid?.() && (found.mode & 0o077) === 0) return;
  throw new Error(`batch.store: ${dir} is not a folder of this user alone: remove it`);
}
