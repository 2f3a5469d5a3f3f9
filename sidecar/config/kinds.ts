/** Types of settings, and short functions to declare them. */

type SettingType = 'object' | 'array' | 'string' | 'integer' | 'boolean';

/**
 * One setting, or a section of settings. All fields except `unit`, `defaultText` and `allowedText` are JSON schema, and
 * `x-message` a keyword of ours (contracts/validator.ts).
 */
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

export const KIB = 1024;
export const MIB = 1024 * KIB;
/** The longest time that a setting can have: a day. Longer values are mistakes. */
export const DAY_MS = 86_400_000;

export function section(properties: Readonly<Record<string, SettingSchema>>): SettingSchema {
  return { type: 'object', additionalProperties: false, properties, default: {} };
}

export function integer(
  description: string,
  rule: { default: number; minimum: number; maximum: number; unit?: string },
): SettingSchema {
  return { type: 'integer', description, ...rule };
}

export function milliseconds(
  description: string,
  rule: { default: number; minimum?: number; maximum?: number },
): SettingSchema {
  return integer(description, { minimum: 0, maximum: DAY_MS, unit: 'ms', ...rule });
}

export function bytes(
  description: string,
  rule: { default: number; minimum?: number; maximum?: number },
): SettingSchema {
  return integer(description, { minimum: 0, maximum: Number.MAX_SAFE_INTEGER, unit: 'bytes', ...rule });
}

export function text(description: string, rule: Partial<SettingSchema>): SettingSchema {
  return { type: 'string', minLength: 1, maxLength: 4096, description, ...rule };
}

export function port(description: string, value: number): SettingSchema {
  return integer(description, { default: value, minimum: 0, maximum: 65_535 });
}
