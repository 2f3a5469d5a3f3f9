/** The content of a keys file: types, schema, and checks that a schema cannot express. */
import type { ModelRoute } from '../contracts/requests.js';
import { closed, UTC_TIME } from '../contracts/common-schema.js';
import { compile } from '../contracts/validator.js';
import { CLASS_WEIGHTS, SERVICE_CLASSES, type ServiceClass } from '../domain/service-class.js';
import { exactTime } from '../lib/clock.js';
import { LIMIT_GROUPS, type KeyLimits, type Limit } from './limits.js';

export interface KeyFile {
  readonly version: 1;
  /** Properties of an account, for all its keys. */
  readonly accounts?: Readonly<Record<string, { readonly frozen?: boolean }>>;
  readonly keys: readonly StoredKey[];
}

export interface StoredKey {
  /** Safe to log, unlike the key. */
  readonly id: string;
  /** SHA-256 of the key, hex. */
  readonly hash: string;
  /** Absent: the key is rejected everywhere (`unattributed_key`). */
  readonly account?: string;
  /** ISO 8601, as are all times here. */
  readonly created: string;
  readonly expires?: string;
  /** When it was revoked. A revoked key is rejected, whatever the time. */
  readonly revoked?: string;
  /** When another key replaced it, while this one works until it expires; it cannot be rotated again. */
  readonly rotated?: string;
  /** Weight of its requests against other accounts' (identity.ts). Default `standard`. */
  readonly class?: ServiceClass;
  /** The same as a number; a key has only one of the two. */
  readonly weight?: 16 | 4 | 1;
  readonly limits?: StoredLimits;
  /** By environment; in other environments the key may call nothing. */
  readonly entitlements: Readonly<Record<string, Entitlement>>;
  /** Created by the sidecar for development, replaced by each start that creates one, and ignored by all others. */
  readonly development?: true;
}

/** By group; or two numbers for the decision routes only, as in older files. */
export type StoredLimits = KeyLimits | Limit;

export interface Entitlement {
  readonly models: 'all' | readonly string[];
  /** Absent: all. */
  readonly routes?: readonly ModelRoute[];
  /** The cohort whose restricted models the key may call. */
  readonly cohort?: string;
  /** Prompt and completion tokens a day, UTC; absent: no limit. */
  readonly tokensPerDay?: number;
}

export type CheckedKeyFile =
  | { readonly kind: 'valid'; readonly content: KeyFile }
  /** One line, for example `keys[0].hash must match …`. It names no value. */
  | { readonly kind: 'invalid'; readonly problem: string };

/** No control or invisible characters: two names that look the same would be two accounts. */
const NAME = '^[^\\p{C}]+$';

/** Each request of the last minute has an entry in memory, some 80 bytes. */
const MAX_LIMIT = 100_000;

const name = { type: 'string', minLength: 1, maxLength: 256, pattern: NAME };
const count = { type: 'integer', minimum: 1, maximum: MAX_LIMIT };
const countOrNone = { type: 'integer', minimum: 0, maximum: MAX_LIMIT };

const entitlement = closed(['models'], {
  models: { anyOf: [{ const: 'all' }, { type: 'array', items: name }] },
  routes: { type: 'array', items: { enum: ['chat', 'decisions', 'systemone'] } },
  cohort: name,
  tokensPerDay: { type: 'integer', minimum: 1, maximum: Number.MAX_SAFE_INTEGER },
});

const limit = closed([], { inFlight: countOrNone, perMinute: countOrNone });

/** Of {@link StoredLimits}. */
export const limitsSchema = closed([], {
  ...Object.fromEntries(LIMIT_GROUPS.map((group) => [group, limit])),
  inFlight: count,
  perMinute: count,
});

const storedKey = closed(['id', 'hash', 'created', 'entitlements'], {
  id: name,
  hash: { type: 'string', pattern: '^[0-9a-f]{64}$' },
  account: name,
  created: UTC_TIME,
  expires: UTC_TIME,
  revoked: UTC_TIME,
  rotated: UTC_TIME,
  class: { enum: SERVICE_CLASSES },
  weight: { enum: Object.values(CLASS_WEIGHTS) },
  limits: limitsSchema,
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

/** Validates the content of a keys file. */
export function checkKeyFile(value: unknown): CheckedKeyFile {
  const checked = check(value);
  if (!checked.ok) return { kind: 'invalid', problem: `${checked.path} ${checked.message}`.trim() };
  const content = checked.value;
  const problem = twins(content.keys) ?? content.keys.map(contradiction).find((found) => found !== undefined);
  return problem === undefined ? { kind: 'valid', content } : { kind: 'invalid', problem };
}

function twins(keys: readonly StoredKey[]): string | undefined {
  if (new Set(keys.map(({ id }) => id)).size < keys.length) return 'two keys have one id';
  return new Set(keys.map(({ hash }) => hash)).size < keys.length ? 'two keys have one hash' : undefined;
}

function contradiction({ id, created, expires, revoked, rotated, limits = {}, ...key }: StoredKey): string | undefined {
  if (key.class !== undefined && key.weight !== undefined) {
    return `${id} has a class and a weight, which are the same thing`;
  }
  if ([created, expires, revoked, rotated].some((at) => at !== undefined && Number.isNaN(exactTime(at)))) {
    return `${id} names a time that does not exist`;
  }
  return oneWay(limits) ? undefined : `${id} has limits that are neither two numbers nor by group`;
}

/** Whether limits are all by group, or exactly the two numbers; a mixture would be ambiguous. */
export function oneWay(limits: StoredLimits): boolean {
  const numbers = Number('inFlight' in limits) + Number('perMinute' in limits);
  return numbers === 0 || (numbers === 2 && Object.keys(limits).length === 2);
}

/** Whether the file says that `account` is frozen. */
export function isFrozen({ accounts = {} }: KeyFile, account: string | undefined): boolean {
  return account !== undefined && Object.hasOwn(accounts, account) && accounts[account]?.frozen === true;
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
  return isFrozen(file, account) ? 'frozen' : 'good';
}

/** Limits by group, from either form of {@link oneWay}. */
export function limitsOf(limits: StoredLimits): KeyLimits {
  return 'inFlight' in limits ? { decisions: limits } : limits;
}
