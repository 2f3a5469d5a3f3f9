/**
 * The snapshot of what accounts have spent: `balances.json`, replaced whole and atomically. It says up to which place in
 * the spool it counts, so that records older than that are not needed any more.
 */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { compile } from '../contracts/validator.js';
import { parsePicodollars } from '../money.js';
import { isMissing, type Position } from './segments.js';

export interface Snapshot {
  /** Everything before it is counted, nothing after. */
  readonly position: Position;
  /** Picodollars by account. */
  readonly settled: ReadonlyMap<string, bigint>;
}

interface Stored {
  readonly version: 1;
  readonly position: Position;
  /** Picodollars as decimal text. */
  readonly settled: Readonly<Record<string, string>>;
  /** SHA-256 over position and sums, hex: a digit that flipped would be money. */
  readonly checksum: string;
}

const check = compile<Stored>({
  type: 'object',
  additionalProperties: false,
  required: ['version', 'position', 'settled', 'checksum'],
  properties: {
    version: { const: 1 },
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
  let value: unknown;
  try {
    value = JSON.parse(await readFile(file, 'utf8'));
  } catch (error) {
    return isMissing(error) ? 'missing' : 'damaged';
  }
  const checked = check(value);
  if (!checked.ok) return 'damaged';
  const { position, settled, checksum } = checked.value;
  const entries = Object.entries(settled);
  if (checksum !== checksumOf(position, entries)) return 'damaged';
  return { position, settled: new Map(entries.map(([account, sum]) => [account, parsePicodollars(sum) ?? 0n])) };
}

/** Rejects when it cannot be written; then the file is as it was. Resolves once it is durable. */
export async function writeSnapshot(file: string, { position, settled }: Snapshot): Promise<void> {
  const entries = Array.from(settled, ([account, sum]): [string, string] => [account, String(sum)]);
  const { segment, offset } = position;
  const checksum = checksumOf(position, entries);
  const stored: Stored = { version: 1, position: { segment, offset }, settled: Object.fromEntries(entries), checksum };
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  const draft = `${file}.${randomUUID()}.tmp`;
  try {
    const handle = await open(draft, 'wx', 0o600);
    try {
      await handle.writeFile(`${JSON.stringify(stored)}\n`);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(draft, file);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
  const folder = await open(dirname(file), 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** In an order of its own: objects move keys that look like numbers. */
function checksumOf({ segment, offset }: Position, entries: readonly (readonly [string, string])[]): string {
  const sorted = [...entries].sort(([a], [b]) => (a < b ? -1 : Number(a > b)));
  return createHash('sha256')
    .update(JSON.stringify([segment, offset, sorted]))
    .digest('hex');
}
