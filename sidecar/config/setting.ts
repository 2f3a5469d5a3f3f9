/** How a setting is declared: a JSON schema, of which its type (`ValueOf`), path, variable, check and docs/config.md are made. */

type SettingType = 'object' | 'array' | 'string' | 'integer' | 'boolean';

/** What an operator may write in two ways: a path relative to the working directory, an IPv6 address in brackets. */
type Form = 'path' | 'host';

/** One setting, or a section of settings: JSON schema, `x-message` of ours (contracts/validator.ts), and {@link OWN_KEYWORDS}. */
export interface SettingSchema {
  /** Absent if `enum` mixes types. */
  readonly type?: SettingType | readonly SettingType[];
  readonly description?: string;
  readonly default?: unknown;
  /** The unit of a number: `ms`, `bytes`, `tokens`, `seats`. */
  readonly unit?: string;
  /** Documented in place of a default that is computed at the start. */
  readonly defaultText?: string;
  /** Documented as the allowed values of a setting of several types. */
  readonly allowedText?: string;
  /** What loading brings a text into: an absolute path, or an address without brackets. */
  readonly form?: Form;
  /** The file of `dataDir` that a path without a value names. */
  readonly inDataDir?: string;
  /** The only text that a setting of several types takes; for a path, the one that is none. */
  readonly word?: string;
  /** What a problem with the value says of it. */
  readonly 'x-message'?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly pattern?: string;
  readonly enum?: readonly unknown[];
  readonly items?: SettingSchema;
  readonly properties?: Readonly<Record<string, SettingSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: false;
}

/** The keywords that no validator knows. No setting may have such a name. */
const OWN_KEYWORDS: ReadonlySet<string> = new Set<keyof SettingSchema>([
  'unit',
  'defaultText',
  'allowedText',
  'form',
  'inDataDir',
  'word',
]);

export const KIB = 1024;
export const MIB = 1024 * KIB;
/** The longest time that a setting can have: a day. Longer values are mistakes. */
export const DAY_MS = 86_400_000;

export function section<const P extends Readonly<Record<string, SettingSchema>>>(
  properties: P,
): { readonly type: 'object'; readonly additionalProperties: false; readonly properties: P; readonly default: object } {
  return { type: 'object', additionalProperties: false, properties, default: {} };
}

interface IntegerRule {
  /** Absent: `defaultText` says what holds. */
  readonly default?: number;
  readonly defaultText?: string;
  readonly minimum: number;
  readonly maximum: number;
  readonly unit?: string;
}

type Integer<R> = { readonly type: 'integer'; readonly description: string } & R;

export function integer<const R extends IntegerRule>(description: string, rule: R): Integer<R> {
  return { type: 'integer', description, ...rule };
}

type QuantityRule = Partial<IntegerRule>;

export function milliseconds<const R extends QuantityRule>(description: string, rule: R): Integer<R> {
  return { type: 'integer', description, minimum: 0, maximum: DAY_MS, unit: 'ms', ...rule };
}

export function bytes<const R extends QuantityRule>(description: string, rule: R): Integer<R> {
  return { type: 'integer', description, minimum: 0, maximum: Number.MAX_SAFE_INTEGER, unit: 'bytes', ...rule };
}

export function port(description: string, value: number): Integer<{ readonly default: number }> {
  return integer(description, { default: value, minimum: 0, maximum: 65_535 });
}

type Text<R> = { readonly type: 'string'; readonly description: string } & R;

export function text<const R extends SettingSchema>(description: string, rule: R): Text<R> {
  return { type: 'string', minLength: 1, maxLength: 4096, description, ...rule };
}

/** A path, relative to the working directory or absolute. */
export function path<const R extends SettingSchema>(description: string, rule: R): Text<R & { readonly form: 'path' }> {
  return text(description, { form: 'path', ...rule });
}

interface List<I> {
  readonly type: 'array';
  readonly description: string;
  readonly maxItems: number;
  readonly items: I;
  readonly default: readonly [];
}

/** A list that is empty by default. */
export function list<const I extends SettingSchema>(description: string, items: I, maxItems: number): List<I> {
  return { type: 'array', description, maxItems, items, default: [] };
}

/** An address to listen on: the name or IP address of a network interface. */
export function host(description: string, value: string): Text<{ readonly default: string }> {
  return text(description, { form: 'host', default: value, maxLength: 253 });
}

export function flag(
  description: string,
  value: boolean,
): { readonly type: 'boolean'; readonly description: string; readonly default: boolean } {
  return { type: 'boolean', description, default: value };
}

/** One setting that a file or an environment variable can name. */
export interface Setting {
  /** For example `queue.maxWaitMs`. */
  readonly path: string;
  /** For example `RA_QUEUE_MAX_WAIT_MS`. */
  readonly variable: string;
  readonly schema: SettingSchema;
}

/** The settings below `schema`, in its order. A list is one setting; its items are not listed. */
export function settings(schema: SettingSchema, prefix = ''): Setting[] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, child]) => {
    const path = prefix + name;
    return child.properties ? settings(child, `${path}.`) : [{ path, variable: variableOf(path), schema: child }];
  });
}

/** `queue.maxWaitMs` -> `RA_QUEUE_MAX_WAIT_MS`. */
export function variableOf(path: string): string {
  return `RA_${path
    .replace(/\./g, '_')
    .replace(/[A-Z]/g, (letter) => `_${letter}`)
    .toUpperCase()}`;
}

/** The schema without {@link OWN_KEYWORDS}, which validators would refuse. */
export function validationSchema(schema: SettingSchema): object {
  const known = (key: string, value: unknown): unknown => (OWN_KEYWORDS.has(key) ? undefined : value);
  return { ...(JSON.parse(JSON.stringify(schema, known)) as object), default: undefined };
}
