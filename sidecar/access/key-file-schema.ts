/** What is in a keys file: its types, its schema, and after that what a schema cannot say. */
import type { Route } from '../contracts/requests.js';
import { closed } from '../contracts/common-schema.js';
import { compile } from '../contracts/validator.js';
import { CLASS_WEIGHTS, SERVICE_CLASSES, type ServiceClass } from '../domain/service-class.js';
import { LIMIT_GROUPS, type KeyLimits, type Limit } from './limits.js';

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
  /** When another key took its place, while this one works on until it expires: it hands nothing on a second time. */
  readonly rotated?: string;
  /** Share of the seats that its requests have against other accounts' (identity.ts). Default `standard`. */
  readonly class?: ServiceClass;
  /** The same as a number; a key has one of the two. */
  readonly weight?: 16 | 4 | 1;
  readonly limits?: StoredLimits;
  /** By environment; an environment that is not named is one in which the key may call nothing. */
  readonly entitlements: Readonly<Record<string, Entitlement>>;
  /** Made by the sidecar for its own developer, and replaced at each start. */
  readonly development?: true;
}

/** By group; or the two numbers of the decision routes alone, as files were written before there were groups. */
export type StoredLimits = KeyLimits | Limit;

export interface Entitlement {
  readonly models: 'all' | readonly string[];
  /** Absent: all. */
  readonly routes?: readonly Route[];
  /** The cohort whose gated models the key may call. */
  readonly cohort?: string;
  /** Prompt and completion tokens a day, UTC; absent: any number. */
  readonly tokensPerDay?: number;
}

export type CheckedKeyFile =
  | { readonly kind: 'valid'; readonly content: KeyFile }
  /** One line, for example `keys[0].hash must match …`. It names no value. */
  | { readonly kind: 'invalid'; readonly problem: string };

/** No control characters, and none that cannot be seen: two names that look the same would be two accounts. */
const NAME = '^[^\\p{C}]+$';

/** A minute's requests each have a time of their own in memory, some 80 bytes. */
const MAX_LIMIT = 100_000;

const name = { type: 'string', minLength: 1, maxLength: 256, pattern: NAME };
/** UTC alone: a time without its zone would expire a key hours early or late. */
const time = { type: 'string', maxLength: 32, pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d{1,9})?Z$' };
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
  created: time,
  expires: time,
  revoked: time,
  rotated: time,
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

/** Checks what a keys file holds. */
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
  if ([created, expires, revoked, rotated].some((at) => at !== undefined && Number.isNaN(Date.parse(at)))) {
    return `${id} names a time that does not exist`;
  }
  return oneWay(limits) ? undefined : `${id} has limits that are neither two numbers nor by group`;
}

/** Whether limits are all by group, or the two numbers and nothing else: half or both would leave some of them out. */
export function oneWay(limits: StoredLimits): boolean {
  const numbers = Number('inFlight' in limits) + Number('perMinute' in limits);
  return numbers === 0 || (numbers === 2 && Object.keys(limits).length === 2);
}

/** Limits by group, whichever {@link oneWay} they are written. */
export function limitsOf(limits: StoredLimits): KeyLimits {
  return 'inFlight' in limits ? { decisions: limits } : limits;
}
