/** Reads fields of JSON that another process sent: each is checked where it is read. */

export type Fields = Readonly<Record<string, unknown>>;

/** The value as an object with fields; any other value has none. */
export function fieldsOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** A whole number that is at least 0. */
export function countOf(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : undefined;
}

export function numberOf(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

export function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

/** Token ids; undefined: something else is among them. */
export function tokensOf(value: unknown): readonly number[] | undefined {
  const tokens = listOf(value);
  return tokens.every((token) => countOf(token) !== undefined) ? (tokens as readonly number[]) : undefined;
}
