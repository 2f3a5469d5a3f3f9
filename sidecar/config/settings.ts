import type { SettingSchema } from './kinds.js';
import { configSchema } from './schema.js';

/** One setting that a file or an environment variable can name. */
export interface Setting {
  /** For example `queue.maxWaitMs`. */
  readonly path: string;
  /** For example `RA_QUEUE_MAX_WAIT_MS`. */
  readonly variable: string;
  readonly schema: SettingSchema;
}

/** The settings below `schema`, in its order. A list is one setting; its items are not listed. */
export function settings(schema: SettingSchema = configSchema, prefix = ''): Setting[] {
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

const DOCUMENTATION: ReadonlySet<string> = new Set(['unit', 'defaultText', 'allowedText']);

/** The schema without the keywords for documentation, which validators would refuse. */
export function validationSchema(): object {
  const known = (key: string, value: unknown): unknown => (DOCUMENTATION.has(key) ? undefined : value);
  return { ...(JSON.parse(JSON.stringify(configSchema, known)) as object), default: undefined };
}

/** An integer's bounds: `>= 0` or `from 0 to 10`; the largest safe integer is not shown as a bound. */
export function bounds({ minimum = 0, maximum = Number.MAX_SAFE_INTEGER }: SettingSchema): string {
  return maximum === Number.MAX_SAFE_INTEGER ? `>= ${minimum}` : `from ${minimum} to ${maximum}`;
}
