/**
 * The snapshot of what accounts have spent: `balances.json`, replaced atomically. It contains the position in the spool
 * up to which it counts, so that older records are not needed any more. It is written in slices, since there may be
 * many accounts and requests are served meanwhile.
 */
import { createHash } from 'node:crypto';
import { readFile, type FileHandle } from 'node:fs/promises';
import { compile } from '../contracts/validator.js';
import { replaceFile } from '../lib/replace-file.js';
import { parsePicodollars } from '../domain/money.js';
import { isMissing } from './disk.js';
import type { Position } from './segments.js';

export interface Snapshot {
  /** All records before it are counted, and none after it. */
  readonly position: Position;
  /** Picodollars by account. */
  readonly settled: ReadonlyMap<string, bigint>;
}

/** Accounts written at a time: some 50 KiB, which block the event loop for less than a millisecond. */
const SLICE_ACCOUNTS = 1000;

/** The text before the checksum. No account's name can contain it, since quotes in names are escaped. */
const CHECKSUM = ',"checksum":"';

interface Stored {
  /** 1: written by older sidecars, whose checksum could not be computed while writing. */
  readonly version: 1 | 2;
  readonly position: Position;
  /** Picodollars as decimal text. */
  readonly settled: Readonly<Record<string, string>>;
  /**
   * SHA-256, hex, over the file before it (in version 1 over position and sums), since a changed digit would change a
   * balance.
   */
  readonly checksum: string;
}

const check = compile<Stored>({
  type: 'object',
  additionalProperties: false,
  required: ['version', 'position', 'settled', 'checksum'],
  properties: {
    version: { enum: [1, 2] },
    position: {
      type: 'object',
      additionalProperties: false,
      required: ['segment', 'offset'],
      properties: { segment: { type: 'integer', minimum: 1 }, offset: { type: 'integer', minimum: 0 } },
    },
    settled: { type: 'object', additionalProperties: { type: 'string', maxLength: 40, pattern: '^\\d+$' } },
    checksum: { type: 'string' },
  },
});

/** `missing`: there is no file; `damaged`: it cannot be read, or its checksum is wrong. */
export async function readSnapshot(file: string): Promise<Snapshot | 'missing' | 'damaged'> {
  let text: string;
  let value: unknown;
  try {
    text = await readFile(file, 'utf8');
    value = JSON.parse(text);
  } catch (error) {
    return isMissing(error) ? 'missing' : 'damaged';
  }
  const checked = check(value);
  if (!checked.ok) return 'damaged';
  const { version, position, settled, checksum } = checked.value;
  const entries = Object.entries(settled);
  const found = version === 1 ? checksumOf(position, entries) : sha256(text.slice(0, text.lastIndexOf(CHECKSUM)));
  if (checksum !== found) return 'damaged';
  return { position, settled: new Map(entries.map(([account, sum]) => [account, parsePicodollars(sum) ?? 0n])) };
}

/**
 * Rejects if it cannot be written; the old file is then unchanged. Resolves once it is durable; until then the sums
 * must not change.
 */
export async function writeSnapshot(file: string, snapshot: Snapshot): Promise<void> {
  const write = async (draft: FileHandle): Promise<void> => {
    const hash = createHash('sha256');
    for (const text of slices(snapshot)) {
      hash.update(text);
      await draft.appendFile(text);
    }
    await draft.appendFile(`${CHECKSUM}${hash.digest('hex')}"}\n`);
  };
  // Only the holder of the spool's lock writes it.
  await replaceFile(file, write, { soleWriter: true });
}

/** The file up to its checksum. */
function* slices({ position: { segment, offset }, settled }: Snapshot): Generator<string> {
  let text = `{"version":2,"position":${JSON.stringify({ segment, offset })},"settled":{`;
  let accounts = 0;
  for (const [account, sum] of settled) {
    text += `${accounts === 0 ? '' : ','}${JSON.stringify(account)}:"${sum}"`;
    accounts += 1;
    if (accounts % SLICE_ACCOUNTS > 0) continue;
    yield text;
    text = '';
  }
  yield `${text}}`;
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** For version 1. Sorted by account, since objects reorder keys that look like numbers. */
function checksumOf({ segment, offset }: Position, entries: readonly (readonly [string, string])[]): string {
  const sorted = [...entries].sort(([a], [b]) => (a < b ? -1 : Number(a > b)));
  return sha256(JSON.stringify([segment, offset, sorted]));
}
