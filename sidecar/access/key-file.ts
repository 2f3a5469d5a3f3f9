/**
 * The keys file: JSON, readable by its owner only, replaced atomically. It contains the SHA-256 of each key and never a
 * key. SHA-256 without salt suffices, since keys are 256 random bits and not chosen by people.
 */
import { realpath, stat, type FileHandle } from 'node:fs/promises';
import { repeatedName } from '../contracts/repeated-name.js';
import { FileProblem, readChecked, readText } from '../lib/checked-file.js';
import { replaceFile } from '../lib/replace-file.js';
import { checkKeyFile, isFrozen, type KeyFile } from './key-file-schema.js';
import { inParts, type LargeFormat } from './large-format.js';

export type { KeyFile, StoredKey } from './key-file-schema.js';

/** The file is invalid. The message is one line with the file and the problem, never its content. */
export class KeyFileError extends FileProblem {
  override readonly name = 'KeyFileError';

  constructor(problem: string, file: string) {
    super(WHAT, problem, file);
  }
}

/** The file's name in messages. */
const WHAT = 'keys';

/** Room for some 200,000 keys; a longer file is an error. */
const MAX_FILE_BYTES = 64 * 1024 * 1024;

/** The content of a file that does not exist. */
export const NO_KEYS: KeyFile = { version: 1, keys: [] };

/**
 * Reads and checks the file; one that does not exist has no keys. Throws {@link FileProblem}, of which {@link
 * KeyFileError} is one.
 */
export async function readKeyFile(file: string): Promise<KeyFile> {
  const text = await readText(WHAT, file, MAX_FILE_BYTES);
  return text === undefined ? NO_KEYS : parseKeyFile(text, file);
}

/** The file's sign, as {@link readChecked} makes it: SHA-256 of its content, or {@link ABSENT}. Throws {@link FileProblem}. */
export async function signOfKeyFile(file: string): Promise<string> {
  const { sign } = await readChecked(file, { what: WHAT, maxBytes: MAX_FILE_BYTES, parse: () => undefined });
  return sign;
}

/** Checks the text of `file`. Throws {@link KeyFileError}. */
export function parseKeyFile(text: string, file: string): KeyFile {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new KeyFileError('is not JSON', file);
  }
  const content = checked(value, file);
  const problem = repeatedName(text, value);
  if (problem !== undefined) throw new KeyFileError(problem, file);
  return content;
}

/** Each part is a file of some of the keys, with what the whole one says of their accounts. */
export const KEYS: LargeFormat<KeyFile> = {
  what: WHAT,
  maxBytes: MAX_FILE_BYTES,
  parse: parseKeyFile,
  *parts(file) {
    for (const keys of inParts(file.keys)) {
      const frozen = keys.flatMap(({ account }) => (account !== undefined && isFrozen(file, account) ? [account] : []));
      yield { version: 1, keys, accounts: Object.fromEntries(frozen.map((account) => [account, { frozen: true }])) };
    }
  },
};

function checked(value: unknown, file: string): KeyFile {
  const outcome = checkKeyFile(value);
  if (outcome.kind === 'invalid') throw new KeyFileError(outcome.problem, file);
  return outcome.content;
}

/**
 * Replaces the file atomically and durably. Creates its folder, for the owner only. Throws {@link KeyFileError} for
 * content that a reader would reject. Owner, group and mode stay, so that an operator's command does not make the file
 * unreadable for the service; if that is not possible, it throws, and the old file stays. The same happens if
 * `mayReplace`, called just before the rename, rejects.
 */
export async function writeKeyFile(
  file: string,
  content: KeyFile,
  mayReplace: () => Promise<void> = () => Promise.resolve(),
): Promise<void> {
  checked(content, file);
  // A symbolic link stays: its target is replaced.
  const target = await realpath(file).catch(() => file);
  const before = await holderOf(target);
  const write = async (draft: FileHandle): Promise<void> => {
    if (before) await handOver(draft, before);
    await draft.writeFile(`${JSON.stringify(content, null, 2)}\n`);
  };
  await replaceFile(target, write, { mayReplace });
}

/** A file's owner, group and mode. */
interface Holder {
  readonly uid: number;
  readonly gid: number;
  readonly mode: number;
}

/** Undefined: the file does not exist yet. */
async function holderOf(path: string): Promise<Holder | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Changes only what differs: users other than root cannot change the owner, and need not. */
async function handOver(handle: FileHandle, { uid, gid, mode }: Holder): Promise<void> {
  const own = await handle.stat();
  if (own.uid !== uid || own.gid !== gid) await handle.chown(uid, gid);
  await handle.chmod(mode & 0o777);
}
