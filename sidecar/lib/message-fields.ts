/** Tests of a message that a child process sent, made of a test for each of its fields. */
export type Test = (value: unknown) => boolean;

/** An object whose fields are not known yet, as each message of a child is at first. */
type Fields = Record<string, unknown>;

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

export const isText: Test = (raw) => typeof raw === 'string';
export const isBoolean: Test = (raw) => typeof raw === 'boolean';

/** A test for each field of a message but its version and its kind. */
type Tests<M> = { readonly [Name in keyof Omit<M, 'v' | 'kind'>]-?: Test };

/** An object whose fields pass these tests. */
export function fields<M>(tests: Tests<M>): Test {
  const all = Object.entries<Test>(tests);
  return (raw) => {
    if (!isFields(raw)) return false;
    for (const [name, test] of all) if (!test(raw[name])) return false;
    return true;
  };
}

/** An object with one of these kinds, each of which has its own fields. */
export function oneOf<M extends { readonly kind: string }>(kinds: {
  readonly [Kind in M['kind']]: Tests<Extract<M, { readonly kind: Kind }>>;
}): Test {
  const tests = new Map(
    Object.entries<Readonly<Record<string, Test>>>(kinds).map(([kind, each]) => [kind, fields(each)]),
  );
  return (raw) => isFields(raw) && (tests.get(raw['kind'] as string)?.(raw) ?? false);
}

/** Copied, since `every` skips the holes of a sparse array. */
export function listOf(test: Test): Test {
  return (raw) => Array.isArray(raw) && Array.from<unknown>(raw).every(test);
}

export function optional(test: Test): Test {
  return (raw) => raw === undefined || test(raw);
}

export function among(...values: readonly unknown[]): Test {
  return (raw) => values.includes(raw);
}
