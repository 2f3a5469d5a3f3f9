/**
 * The keys file: JSON, readable by its owner only, replaced atomically. It has the SHA-256 of each key and never a key. No salt is needed,
 * since keys are 256 random bits and not chosen by people.
 */
import { createHash } from 'node:crypto';
import { KEY_ROUTES } from '../contracts/requests.js';
import { closed, UTC_TIME } from '../contracts/common-schema.js';
import { pathOf } from '../contracts/body-refusals.js';
import { compile, parseFile, type ValueOf } from '../contracts/validator.js';
import { CLASS_WEIGHTS, SERVICE_CLASSES, SERVICE_TIERS } from '../domain/service-class.js';
import { exactTime } from '../lib/clock.js';
import { LIMIT_GROUPS, tokenLimitsOf, type LimitGroup, type TokenLimits } from './limits.js';
import { checkLength, FileProblem, readChecked, readText } from '../lib/checked-file.js';
import { replaceOperatorsFile } from '../lib/replace-file.js';
import type { Caller } from './identity.js';
import { inParts, type LargeFormat } from './large-file.js';

/** The caller with these rights, as a keys file or an authorizer has them. `own`: what is not of the rights. */
export function callerWith(
  { models, routes, cohort, usage, tiers, ...quotas }: Entitlement,
  own: Pick<Caller, 'account' | 'keyId' | 'environment' | 'weight'> & Partial<Pick<Caller, 'limits' | 'accountTokens'>>,
): Caller {
  return Object.freeze({
    kind: 'caller',
    ...own,
    models: models === 'all' ? models : new Set(models),
    ...(routes && { routes: new Set(routes) }),
    ...(cohort !== undefined && { cohort }),
    ...tokenLimitsOf(quotas),
    ...(usage && { usage }),
    ...(tiers && { tiers: new Set(tiers) }),
  });
}

/** No control or invisible characters: two names that look the same would be two accounts. */
const NAME = '^[^\\p{C}]+$';

/** Each request of the last minute has an entry in memory, some 80 bytes. */
const MAX_LIMIT = 100_000;

const name = { type: 'string', minLength: 1, maxLength: 256, pattern: NAME } as const;
const countOrNone = { type: 'integer', minimum: 0, maximum: MAX_LIMIT } as const;
const tokens = { type: 'integer', minimum: 1, maximum: Number.MAX_SAFE_INTEGER } as const;

/** The fields of {@link TokenLimits}. */
export const tokenLimitFields = {
  tokensPerMinute: tokens,
  tokensPerDay: tokens,
  tokensPerMonth: tokens,
} as const satisfies Record<keyof TokenLimits, object>;

const entitlement = closed(['models'], {
  models: { anyOf: [{ const: 'all' }, { type: 'array', items: name }] },
  /** Absent: all. */
  routes: { type: 'array', items: { enum: KEY_ROUTES } },
  /** The cohort whose restricted models the key may call. */
  cohort: name,
  ...tokenLimitFields,
  /** The key sees the usage of all keys of its account, and the balance; absent: its own usage alone. */
  usage: { const: 'account' },
  /** The tiers that its requests may ask for; absent: none. */
  tiers: { type: 'array', items: { enum: SERVICE_TIERS } },
});

/** What a key may do in an environment, and its quotas there. */
export type Entitlement = ValueOf<typeof entitlement>;

const limit = closed([], { inFlight: countOrNone, perMinute: countOrNone });
const limitOfGroup = Object.fromEntries(LIMIT_GROUPS.map((group) => [group, limit]));

/** Of {@link KeyLimits}. */
export const limitsSchema = closed([], limitOfGroup as Record<LimitGroup, typeof limit>);

/** What is set once, or only by creating, rotating and revoking a key. */
export const FIXED_FIELDS = {
  /** Safe to log, unlike the key. */
  id: name,
  /** SHA-256 of the key, hex. */
  hash: { type: 'string', pattern: '^[0-9a-f]{64}$' },
  /** Absent: the key is rejected everywhere (`unattributed_key`). */
  account: name,
  /** ISO 8601, as are all times here. */
  created: UTC_TIME,
  /** When it was revoked. A revoked key is rejected, whatever the time. */
  revoked: UTC_TIME,
  /** When another key replaced it, while this one works until it expires; it cannot be rotated again. */
  rotated: UTC_TIME,
  /** Created by the sidecar for development, replaced by each start that creates one, and ignored by all others. */
  development: { const: true },
} as const;

/** What may be changed of a key. */
export const CHANGEABLE_FIELDS = {
  expires: UTC_TIME,
  /** Weight of its requests against other accounts' (identity.ts). Default `standard`. */
  class: { enum: SERVICE_CLASSES },
  /** The same as a number; a key has only one of the two. */
  weight: { enum: Object.values(CLASS_WEIGHTS) },
  limits: limitsSchema,
  /** By environment; in other environments the key may call nothing. */
  entitlements: { type: 'object', additionalProperties: entitlement },
} as const;

const storedKey = closed(['id', 'hash', 'created', 'entitlements'], { ...FIXED_FIELDS, ...CHANGEABLE_FIELDS });

export type StoredKey = ValueOf<typeof storedKey>;

/** All of them may be changed. */
export const ACCOUNT_FIELDS = { frozen: { type: 'boolean' }, ...tokenLimitFields } as const;

const storedAccount = closed([], ACCOUNT_FIELDS);

/** Properties of an account, for all its keys together: whether it is frozen, and its quotas. */
export type StoredAccount = ValueOf<typeof storedAccount>;

/** The names of what may be changed of a key, and of an account. */
export const CHANGEABLE: Readonly<Record<'key' | 'account', readonly string[]>> = {
  key: Object.keys(CHANGEABLE_FIELDS),
  account: Object.keys(ACCOUNT_FIELDS),
};

const keyFile = closed(['version', 'keys'], {
  version: { const: 1 },
  accounts: { type: 'object', additionalProperties: storedAccount },
  keys: { type: 'array', items: storedKey },
});

export type KeyFile = ValueOf<typeof keyFile>;

const check = compile<KeyFile>(keyFile, { written: 'keys', nameUnknownFields: true });

/** What makes an entry of the file invalid. */
export interface EntryProblem {
  /** JSON path in the entry; '' for the whole of it. */
  readonly field: string;
  /** What is required of it. */
  readonly why: string;
}

/** Why a file with this key, or with this entry of an account, would be rejected; undefined if it would not. */
export function problemOf(entry: { readonly key: unknown } | { readonly account: unknown }): EntryProblem | undefined {
  const found = check({
    version: 1,
    ...('key' in entry ? { keys: [entry.key] } : { keys: [], accounts: { it: entry.account } }),
  });
  if (!found.ok) return { field: pathOf(found.segments.slice(2)), why: found.message };
  const why = found.value.keys.map(contradiction)[0];
  return why === undefined ? undefined : { field: '', why };
}

/** Checks a value that was read, or is about to be written. Throws {@link KeyFileError}; its message names no value of the file. */
export function checked(value: unknown, file: string): KeyFile {
  const found = check(value);
  if (!found.ok) throw new KeyFileError(`${found.path} ${found.message}`.trim(), file);
  return consistent(found.value, file);
}

function consistent(content: KeyFile, file: string): KeyFile {
  const { keys } = content;
  const problem = twins(keys) ?? keys.map(contradiction).find((each) => each !== undefined);
  if (problem !== undefined) throw new KeyFileError(problem, file);
  return content;
}

function twins(keys: readonly StoredKey[]): string | undefined {
  if (new Set(keys.map(({ id }) => id)).size < keys.length) return 'two keys have one id';
  return new Set(keys.map(({ hash }) => hash)).size < keys.length ? 'two keys have one hash' : undefined;
}

function contradiction({ id, created, expires, revoked, rotated, ...key }: StoredKey): string | undefined {
  if (key.class !== undefined && key.weight !== undefined) {
    return `${id} has a class and a weight, which are the same thing`;
  }
  if ([created, expires, revoked, rotated].some((at) => at !== undefined && Number.isNaN(exactTime(at)))) {
    return `${id} names a time that does not exist`;
  }
  return undefined;
}

/** What the file says of an account; undefined if it says nothing. */
export function accountOf({ accounts = {} }: KeyFile, account: string | undefined): StoredAccount | undefined {
  return account !== undefined && Object.hasOwn(accounts, account) ? accounts[account] : undefined;
}

/** The check that a caller with this key would fail first, or `good`. `now`: epoch ms. */
export function stateOfKey(
  { revoked, expires, account }: StoredKey,
  file: KeyFile,
  now: number,
): 'revoked' | 'expired' | 'unattributed' | 'frozen' | 'good' {
  if (revoked !== undefined) return 'revoked';
  if (expires !== undefined && Date.parse(expires) <= now) return 'expired';
  if (account === undefined) return 'unattributed';
  return accountOf(file, account)?.frozen === true ? 'frozen' : 'good';
}

/** All of a key but its hash, with its state and the quotas of its account. */
export type DescribedKey = Omit<StoredKey, 'hash'> & {
  readonly state: ReturnType<typeof stateOfKey>;
  /** Absent: its account has none. */
  readonly accountTokens?: TokenLimits;
};

/** `now`: epoch ms. */
export function described(key: StoredKey, file: KeyFile, now: number): DescribedKey {
  const shown: Omit<StoredKey, 'hash'> & { hash?: string } = { ...key };
  delete shown.hash;
  const account = accountOf(file, key.account);
  const quotas = account && tokenLimitsOf(account);
  return {
    ...shown,
    ...(quotas && Object.keys(quotas).length > 0 && { accountTokens: quotas }),
    state: stateOfKey(key, file, now),
  };
}

/** The form of a key in the file: SHA-256, hex. */
export function hashKey(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}

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

/** Reads and checks the file; one that does not exist has no keys. Throws {@link FileProblem}, of which {@link KeyFileError} is one. */
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
  const refuse = (problem: string): never => {
    throw new KeyFileError(problem, file);
  };
  return consistent(parseFile(text, check, refuse), file);
}

/** Each part is a file of some of the keys, with what the whole one says of their accounts. */
export const KEYS: LargeFormat<KeyFile> = {
  what: WHAT,
  maxBytes: MAX_FILE_BYTES,
  parse: parseKeyFile,
  *parts(file) {
    for (const keys of inParts(file.keys)) {
      const accounts = keys.flatMap(({ account }) => {
        const stored = accountOf(file, account);
        return account !== undefined && stored ? [[account, stored] as const] : [];
      });
      yield { version: 1, keys, accounts: Object.fromEntries(accounts) };
    }
  },
};

/**
 * Replaces the file atomically and durably, as {@link replaceOperatorsFile}. Creates its folder, for the owner only. Throws {@link
 * KeyFileError} for content that a reader would reject. The old file stays if `mayReplace`, called just before the rename, rejects.
 */
export async function writeKeyFile(file: string, content: KeyFile, mayReplace?: () => Promise<void>): Promise<void> {
  checked(content, file);
  const text = `${JSON.stringify(content, null, 2)}\n`;
  checkLength(KEYS, text, file);
  await replaceOperatorsFile(file, text, mayReplace);
}
