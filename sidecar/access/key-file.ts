/**
 * The keys file: JSON, readable by its owner alone, replaced whole and atomically. It holds the SHA-256 of each key and
 * never a key. SHA-256 without salt is enough, since keys are 256 random bits of ours and not words that people choose.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { compile } from '../contracts/validator.js';
import type { Route } from '../contracts/requests.js';
import { CLASS_WEIGHTS, type Limits, type ServiceClass } from './identity.js';

export interface KeyFile {
  readonly version: 1;
  /** What holds for all keys of an account. */
  readonly accounts?: Readonly<Record<string, { readonly frozen?: boolean }>>;
  readonly keys: readonly StoredKey[];
}

export interface StoredKey {
  /** Safe to log, unlike the key. */
  readonly id: string;
  /** SHA-256 of the key, hex. */
  readonly hash: string;
  /** Absent: the key works nowhere (`unattributed_key`). */
  readonly account?: string;
  /** ISO 8601, as are all times here. */
  readonly created: string;
  readonly expires?: string;
  /** When it was revoked. A revoked key works no more, whatever time this is. */
  readonly revoked?: string;
  /** Share of the seats that its requests have against other accounts' (identity.ts). Default `standard`. */
  readonly class?: ServiceClass;
  /** The same as a number; a key has one of the two. */
  readonly weight?: 16 | 4 | 1;
  readonly limits?: Limits;
  /** By environment; an environment that is not named is one in which the key may call nothing. */
  readonly entitlements: Readonly<Record<string, Entitlement>>;
  /** Made by the sidecar for its own developer, and replaced at each start. */
  readonly development?: true;
}

export interface Entitlement {
  readonly models: 'all' | readonly string[];
  /** Absent: all. */
  readonly routes?: readonly Route[];
  /** The cohort whose gated models the key may see. Kept for the gate; nothing is gated yet. */
  readonly cohort?: string;
}

/** The file cannot be used. The message is one line and names the file and what is wrong, never what is in it. */
export class KeyFileError extends Error {
  override readonly name = 'KeyFileError';
}

const name = { type: 'string', minLength: 1, maxLength: 256 };
/** UTC alone: a time without its zone would expire a key hours early or late. */
const time = { type: 'string', maxLength: 32, pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d{1,9})?Z$' };
const count = { type: 'integer', minimum: 1 };

function closed(required: readonly string[], properties: Readonly<Record<string, object>>): object {
  return { type: 'object', additionalProperties: false, required, properties };
}

const entitlement = closed(['models'], {
  models: { anyOf: [{ const: 'all' }, { type: 'array', items: name }] },
  routes: { type: 'array', items: { enum: ['chat', 'decisions', 'systemone'] } },
  cohort: name,
});

const storedKey = closed(['id', 'hash', 'created', 'entitlements'], {
  id: name,
  hash: { type: 'string', pattern: '^[0-9a-f]{64}$' },
  account: name,
  created: time,
  expires: time,
  revoked: time,
  class: { enum: Object.keys(CLASS_WEIGHTS) },
  weight: { enum: Object.values(CLASS_WEIGHTS) },
  limits: closed(['inFlight', 'perMinute'], { inFlight: count, perMinute: count }),
  entitlements: { type: 'object', additionalProperties: entitlement },
  development: { const: true },
});

const check = compile<KeyFile>(
  closed(['version', 'keys'], {
    version: { const: 1 },
    accounts: { type: 'object', additionalProperties: closed([], { frozen: { type: 'boolean' } }) },
    keys: { type: 'array', items: storedKey },
  }),
  { nameUnknownFields: true },
);

/** Reads and checks the file; one that does not exist holds no keys. Throws {@link KeyFileError}. */
export async function readKeyFile(file: string): Promise<KeyFile> {
  let value: unknown;
  try {
    value = JSON.parse(await readFile(file, 'utf8'));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return { version: 1, keys: [] };
    throw new KeyFileError(`keys: ${code === undefined ? 'is not JSON' : `cannot be read: ${code}`} (file ${file})`);
  }
  const checked = check(value);
  if (!checked.ok) throw new KeyFileError(`keys: ${checked.path} ${checked.message} (file ${file})`);
  if (new Set(checked.value.keys.map(({ id }) => id)).size < checked.value.keys.length) {
    throw new KeyFileError(`keys: two keys have one id (file ${file})`);
  }
  for (const { id, created, expires, revoked, ...key } of checked.value.keys) {
    if (key.class !== undefined && key.weight !== undefined) {
      throw new KeyFileError(`keys: ${id} has a class and a weight, which are the same thing (file ${file})`);
    }
    if ([created, expires, revoked].some((at) => at !== undefined && Number.isNaN(Date.parse(at)))) {
      throw new KeyFileError(`keys: ${id} names a time that does not exist (file ${file})`);
    }
  }
  return checked.value;
}

/** Replaces the file: whoever reads it sees the old one or the new one. Makes its folder, for the owner alone. */
export async function writeKeyFile(file: string, content: KeyFile): Promise<void> {
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  const draft = `${file}.${randomUUID()}.tmp`;
  try {
    const handle = await open(draft, 'wx', 0o600);
    try {
      await handle.writeFile(`${JSON.stringify(content, null, 2)}\n`);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(draft, file);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}
