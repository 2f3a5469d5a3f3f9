/** Checks of single values in messages of other processes, which may be anything that a link carries. */

/** An object whose fields are not known yet. */
export type Fields = Record<string, unknown>;

/** Whether it has fields at all. */
export function isFields(raw: unknown): raw is Fields {
  return typeof raw === 'object' && raw !== null;
}

/** A whole number, from 0 on. */
export function isCount(raw: unknown): raw is number {
  return Number.isSafeInteger(raw) && (raw as number) >= 0;
}

/** A whole number, from 1 on. */
export function isPositive(raw: unknown): raw is number {
  return isCount(raw) && raw > 0;
}
