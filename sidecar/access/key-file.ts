/**
 * The keys file: JSON, made for its owner alone to read, replaced whole and atomically. It holds the SHA-256 of each key and
 * never a key. SHA-256 without salt is enough, since keys are 256 random bits of ours and not words that people choose.
 */
import { realpath, stat, type FileHandle } from 'node:fs/promises';
import { FileProblem, readText } from '../lib/followed-file.js';
import { replaceFile } from '../lib/replace-file.js';
import { checkKeyFile, type KeyFile } from './key-file-schema.js';

export type { KeyFile, StoredKey } from './key-file-schema.js';

/** The file cannot be used. The message is one line and names the file and what is wrong, never what is in it. */
export class KeyFileError extends FileProblem {
  override readonly name = 'KeyFileError';

  constructor(problem: string, file: string) {
    super(WHAT, problem, file);
  }
}

/** What messages call the file. */
export const WHAT = 'keys';

/** Some 200,000 keys; a longer file is none of ours, and reading it would only take the memory. */
export const MAX_FILE_BYTES = 64 * 1024 * 1024;

/** What a file that does not exist holds. */
export const NO_KEYS: KeyFile = { version: 1, keys: [] };

/** Reads and checks the file; one that does not exist holds no keys. Throws {@link FileProblem}, of which {@link KeyFileError} is one. */
export async function readKeyFile(file: string): Promise<KeyFile> {
  const text = await readText(WHAT, file, MAX_FILE_BYTES);
  return text === undefined ? NO_KEYS : parseKeyFile(text, file);
}

/** Checks the text of `file`. Throws {@link KeyFileError}. */
export function parseKeyFile(text: string, file: string): KeyFile {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new KeyFileError('is not JSON', file);
  }
  return checked(value, file);
}

function checked(value: unknown, file: string): KeyFile {
  const outcome = checkKeyFile(value);
  if (outcome.kind === 'invalid') throw new KeyFileError(outcome.problem, file);
  return outcome.content;
}

/**
 * Replaces the file: whoever reads it sees the old one or the new one, and the new one is on the disk once this resolves.
 * Makes its folder, for the owner alone. What a reader would refuse is not written: throws {@link KeyFileError}. Owner,
 * group and mode stay: an operator's command must not take the file away from the service. Where that cannot be, it throws,
 * and the old file stays; so it does when `mayReplace`, called at the last moment, rejects.
 */
export async function writeKeyFile(
  file: string,
  content: KeyFile,
  mayReplace: () => Promise<void> = () => Promise.resolve(),
): Promise<void> {
  checked(content, file);
  // A link stays a link: what it points at is replaced.
  const target = await realpath(file).catch(() => file);
  const before = await holderOf(target);
  const write = async (draft: FileHandle): Promise<void> => {
    if (before) await handOver(draft, before);
    await draft.writeFile(`${JSON.stringify(content, null, 2)}\n`);
  };
  await replaceFile(target, write, { mayReplace });
}

/** Whose a file is and who may use it. */
interface Holder {
  readonly uid: number;
  readonly gid: number;
  readonly mode: number;
}

/** Undefined: there is no file yet. */
async function holderOf(path: string): Promise<Holder | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Changes what differs alone: others than root may give nothing away, and need not. */
async function handOver(handle: FileHandle, { uid, gid, mode }: Holder): Promise<void> {
  const own = await handle.stat();
  if (own.uid !== uid || own.gid !== gid) await handle.chown(uid, gid);
  await handle.chmod(mode & 0o777);
}
