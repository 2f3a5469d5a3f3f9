/** Records of stored files and batches: a small JSON file each, replaced atomically, callers' texts sealed by the operator's key. */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { mkdir, open, readdir, readFile, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { jsonIn } from '../lib/json-in.js';
import { replaceFile } from '../lib/replace-file.js';

const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_BYTES = 32;

/** Seals short texts with the first of the operator's keys, and opens those of all of them, so that a key can be replaced. */
export class Vault {
  readonly #keys: readonly Uint8Array[];

  /** `secrets`: of the operator's file, the one for new texts first. */
  constructor(secrets: readonly (string | Uint8Array)[]) {
    this.#keys = secrets.map((secret) => new Uint8Array(hkdfSync('sha256', secret, '', 'ra-sidecar batch', KEY_BYTES)));
  }

  /** A vault whose key ends with this process. */
  static ofProcess(): Vault {
    return new Vault([randomBytes(KEY_BYTES)]);
  }

  /** `id`: of the record that has the text, which opens with this id alone. */
  seal(text: string, id: string): string {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv('aes-256-gcm', this.#keys[0] ?? new Uint8Array(), nonce);
    cipher.setAAD(Buffer.from(id));
    const sealed = cipher.update(text, 'utf8');
    cipher.final();
    return Buffer.concat([nonce, sealed, cipher.getAuthTag()]).toString('base64');
  }

  /** Undefined if no key of the operator opens it. */
  unseal(sealed: string, id: string): string | undefined {
    const bytes = Buffer.from(sealed, 'base64');
    for (const key of this.#keys) {
      const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, NONCE_BYTES));
      decipher.setAAD(Buffer.from(id));
      decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
      const text = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES));
      try {
        decipher.final();
        return text.toString('utf8');
      } catch {
        // Sealed by another key.
      }
    }
    return undefined;
  }
}

export interface StoredRecord {
  readonly id: string;
  readonly account: string;
  /** Sealed by a {@link Vault}. */
  readonly sealed: string;
}

/** The records in one folder, all of them in memory. Records are replaced and never changed. */
export class Records<T extends StoredRecord> {
  readonly #dir: string;
  readonly #byId = new Map<string, T>();

  private constructor(dir: string) {
    this.#dir = dir;
  }

  /** Reads all records of a folder, which it creates. Overwritten ones were being removed. Rejects with one line if one is unreadable. */
  static async open<T extends StoredRecord>(dir: string): Promise<Records<T>> {
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const records = new Records<T>(dir);
    for (const name of (await readdir(dir)).sort()) {
      const path = join(dir, name);
      const text = name.endsWith('.json') ? await readFile(path, 'utf8') : '';
      // Also the draft of a record that a crash left.
      if (/^$|\0{512}|\0$/.test(text)) {
        await destroy(path);
        continue;
      }
      const record = parsed(text) as T | undefined;
      if (record === undefined || `${record.id}.json` !== name) throw new Error(`batch: ${path} is damaged`);
      records.#byId.set(record.id, record);
    }
    return records;
  }

  get(id: string): T | undefined {
    return this.#byId.get(id);
  }

  all(): IterableIterator<T> {
    return this.#byId.values();
  }

  /**
   * Adds or replaces a record; durable once it resolves. The former file is then overwritten. Rejects with the system's error; `get` then
   * has the old record, or the new one if that is durable.
   */
  async put(record: T): Promise<void> {
    const path = this.#pathOf(record.id);
    const former = this.#byId.has(record.id) ? await open(path, 'r+').catch(unlessMissing) : undefined;
    let isReplaced = false;
    try {
      await replaceFile(path, async (draft) => draft.writeFile(JSON.stringify(record)), { soleWriter: true });
      isReplaced = true;
      if (former) await overwrite(former);
    } finally {
      await former?.close();
      // Last, so that what follows the change, such as the release of a file, is done before others read the record.
      if (isReplaced) this.#byId.set(record.id, record);
      // A new one may have its name already.
      else if (!former) await destroy(path);
    }
  }

  /**
   * Removes a record. Its file is overwritten before, so that what was sealed in it, such as a key, is gone. Rejects with the system's
   * error if it cannot be; the record is then still there. Resolves with whether this call removed it.
   */
  async remove(id: string): Promise<boolean> {
    if (!this.#byId.has(id)) return false;
    await destroy(this.#pathOf(id));
    return this.#byId.delete(id);
  }

  #pathOf(id: string): string {
    return join(this.#dir, `${id}.json`);
  }
}

/** Overwrites a file and removes it, if it is there. */
async function destroy(path: string): Promise<void> {
  const handle = await open(path, 'r+').catch(unlessMissing);
  if (handle) await overwrite(handle).finally(() => handle.close());
  await rm(path, { force: true });
}

async function overwrite(handle: FileHandle): Promise<void> {
  const { size } = await handle.stat();
  await handle.write(Buffer.alloc(size), 0, size, 0);
  await handle.sync();
}

function unlessMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}

/** Undefined if the text is no record. What else it has was written by this program. */
function parsed(text: string): StoredRecord | undefined {
  const value = jsonIn(text) as Partial<StoredRecord> | null | undefined;
  const isRecord = [value?.id, value?.account, value?.sealed].every((field) => typeof field === 'string');
  return isRecord ? (value as StoredRecord) : undefined;
}
