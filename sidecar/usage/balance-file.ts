/**
 * The snapshot of what accounts have spent: `balances.json`, replaced whole and atomically. It says up to which place in
 * the spool it counts, so that records older than that are not needed any more. It is written in slices, since there may be
 * many accounts and requests are served meanwhile.
 */
import { createHash } from 'node:crypto';
import { readFile, type FileHandle } from 'node:fs/promises';
import { compile } from '../contracts/validator.js';
import { replaceFile } from '../lib/replace-file.js';
import { parsePicodollars } from '../domain/money.js';
import { isMissing, type Position } from './segments.js';

export interface Snapshot {
  /** Everything before it is counted, nothing after. */
  readonly position: Position;
  /** Picodollars by account. */
  readonly settled: ReadonlyMap<string, bigint>;
}

/** Accounts that are written at a time: some 50 KiB, which take less than a millisecond between two turns of the loop. */
const SLICE_ACCOUNTS = 1000;

/** What the checksum follows. No account's name can hold it: a quote in one is escaped. */
const CHECKSUM = ',"checksum":"';

interface Stored {
  /** 1: what sidecars wrote before the checksum could be taken while writing. */
  readonly version: 1 | 2;
  readonly position: Position;
  /** Picodollars as decimal text. */
  readonly settled: Readonly<Record<string, string>>;
  /** SHA-256, hex, over all of the file before it (in version 1 over position and sums): a flipped digit would be money. */
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

/** `missing`: there is none; `damaged`: it cannot be read, or is not what was written. */
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
 * Rejects when it cannot be written; then the file is as it was. Resolves once it is durable; until then the sums must stay
 * as they are.
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
  // Whoever holds the spool's lock.
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

/** Of version 1. In an order of its own: objects move keys that look like numbers. */
function checksumOf({ segment, offset }: Position, entries: readonly (readonly [string, string])[]): string {
  const sorted = [...entries].sort(([a], [b]) => (a < b ? -1 : Number(a > b)));
  return sha256(JSON.stringify([segment, offset, sorted]));
}
