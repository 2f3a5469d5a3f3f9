/** Parses the options of `keys create`. */
import type { StoredKey } from '../access/key-file-schema.js';
import { LIMIT_GROUPS, type KeyLimits, type LimitGroup } from '../access/limits.js';
import { ENVIRONMENT_NAME } from '../config/schema.js';
import type { ModelRoute } from '../contracts/requests.js';
import { SERVICE_CLASSES } from '../domain/service-class.js';
import { exactTime } from '../lib/clock.js';
import { UsageError } from './command.js';

export type CreateOptions = Readonly<
  Partial<
    Record<
      'account' | 'environment' | 'models' | 'routes' | 'cohort' | 'expires' | 'class' | 'limits' | 'tokens-per-day',
      string
    >
  >
>;

const ROUTES: readonly ModelRoute[] = ['chat', 'decisions', 'systemone'];

const UNIT_MS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000 } as const;

/** The longest life of a key, ms; more is a mistake. */
const MAX_MS = 3650 * UNIT_MS.d;

/** The properties that the options set. */
export type NewKeyProperties = Omit<StoredKey, 'id' | 'hash' | 'created'>;

/** A key's properties. `now`: epoch ms. */
export function propertiesOf(options: CreateOptions, environment: string, now: number): NewKeyProperties {
  const { account, models = 'all', routes, cohort, expires, limits } = options;
  if (account === undefined || account === '') throw new UsageError('--account is required');
  if (options.environment !== undefined && !isEnvironment(options.environment))
    throw new UsageError('--environment must be lower-case letters, digits, - and _, as in the configuration');
  const tokens = options['tokens-per-day'];
  const entitlement = {
    models: models === 'all' ? ('all' as const) : listOf('--models', models),
    ...(routes !== undefined && { routes: listOf('--routes', routes).map((name) => oneOf('--routes', name, ROUTES)) }),
    ...(cohort !== undefined && { cohort }),
    ...(tokens !== undefined && { tokensPerDay: countOf('--tokens-per-day', tokens) }),
  };
  return {
    account,
    ...(expires !== undefined && { expires: endOf(expires, now) }),
    ...(options.class !== undefined && {
      class: oneOf('--class', options.class, SERVICE_CLASSES),
    }),
    ...(limits !== undefined && { limits: limitsFrom(limits) }),
    entitlements: { [options.environment ?? environment]: entitlement },
  };
}

/** Whether a configuration may have this environment. */
function isEnvironment(name: string): boolean {
  return name.length <= ENVIRONMENT_NAME.maxLength && new RegExp(ENVIRONMENT_NAME.pattern).test(name);
}

/** `30d`, `12h`, `90m`, `45s` in ms. `others`: what else the option takes. */
export function durationMs(option: string, text: string, others = ''): number {
  const [, number, unit] = /^(\d{1,9})([dhms])$/.exec(text) ?? [];
  const ms = Number(number) * UNIT_MS[(unit ?? 's') as keyof typeof UNIT_MS];
  if (!(ms <= MAX_MS))
    throw new UsageError(`${option} must be a time such as 30d, 12h or 90m, of ten years at most${others}`);
  return ms;
}

function endOf(text: string, now: number): string {
  if (!/^\d{4}-/.test(text)) {
    const ms = durationMs('--expires', text, ', or 2027-01-31T00:00:00Z');
    if (ms === 0) throw new UsageError('--expires must be after now');
    return new Date(now + ms).toISOString();
  }
  // A time needs its zone: without, it would mean different times on different machines.
  const at = /^[\d-]+T[\d:.]+(Z|[+-]\d\d:\d\d)$/.test(text) ? exactTime(text) : NaN;
  if (Number.isNaN(at)) throw new UsageError('--expires must be a time such as 2027-01-31T00:00:00Z, or 30d');
  if (at <= now) throw new UsageError('--expires is in the past');
  return new Date(at).toISOString();
}

/** `decisions=8/100,chat=0/60`. */
function limitsFrom(text: string): KeyLimits {
  const limits: Partial<Record<LimitGroup, { inFlight: number; perMinute: number }>> = {};
  for (const part of listOf('--limits', text)) {
    const [, name = '', inFlight, perMinute] = /^(\w+)=(\d{1,6})\/(\d{1,6})$/.exec(part) ?? [];
    if (inFlight === undefined) throw new UsageError('--limits must be as in chat=4/60: in flight, and a minute');
    limits[oneOf('--limits', name, LIMIT_GROUPS)] = { inFlight: Number(inFlight), perMinute: Number(perMinute) };
  }
  return limits;
}

function listOf(option: string, text: string): string[] {
  const items = text.split(',').map((item) => item.trim());
  if (items.includes('')) throw new UsageError(`${option} must be comma-separated names`);
  return [...new Set(items)];
}

function oneOf<T extends string>(option: string, text: string, known: readonly T[]): T {
  const found = known.find((name) => name === text);
  if (found === undefined) throw new UsageError(`${option} takes ${known.join(', ')}`);
  return found;
}

function countOf(option: string, text: string): number {
  if (!/^[1-9]\d{0,14}$/.test(text)) throw new UsageError(`${option} must be a whole number above 0`);
  return Number(text);
}
