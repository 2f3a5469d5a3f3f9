/**
 * The part of tap that the contract’s unit tests use, without reports: the first failed assertion throws. Thousands of
 * runs of those tests then take minutes.
 */
import { deepEqual, deepStrictEqual, fail, match, ok, strictEqual, throws } from 'node:assert';

type Body = (t: QuickTap) => unknown;

export class QuickTap {
  /** Tests that were still running when their function returned. */
  readonly #running: Promise<unknown>[] = [];

  /** Resolves when all asynchronous tests have passed; rejects with the first failure. */
  async done(): Promise<void> {
    await Promise.all(this.#running);
  }

  readonly test = (_name: string, body: Body): void => {
    const result = body(this);
    if (!(result instanceof Promise)) return;
    // done() awaits it; until then a rejection must not count as unhandled.
    result.catch(() => undefined);
    this.#running.push(result);
  };

  readonly end = (): void => undefined;
  readonly fail = (message?: string): never => fail(message);
  readonly ok = (value: unknown): void => ok(value);
  readonly notOk = (value: unknown): void => ok(value === false || value === undefined || value === null);
  readonly equal = (actual: unknown, expected: unknown): void => strictEqual(actual, expected);
  readonly same = (actual: unknown, expected: unknown): void => deepEqual(actual, expected);
  readonly strictSame = (actual: unknown, expected: unknown): void => deepStrictEqual(actual, expected);
  readonly type = (value: unknown, type: string): void => strictEqual(typeof value, type);
  readonly throws = (call: () => unknown, expected: Readonly<Record<string, string>>): void => throws(call, expected);
  readonly match = (actual: unknown, pattern: unknown): void => ok(matches(actual, pattern));
  readonly notMatch = (actual: unknown, pattern: unknown): void => ok(!matches(actual, pattern));
}

/** tap’s match: expressions and substrings for texts, some of the fields for objects. */
function matches(actual: unknown, pattern: unknown): boolean {
  if (pattern instanceof RegExp) return typeof actual === 'string' && quietly(() => match(actual, pattern));
  if (typeof pattern === 'string') return typeof actual === 'string' && actual.includes(pattern);
  if (typeof pattern !== 'object' || pattern === null) return Object.is(actual, pattern);
  if (typeof actual !== 'object' || actual === null) return false;
  return Object.entries(pattern).every(([name, part]) => matches((actual as Record<string, unknown>)[name], part));
}

function quietly(check: () => void): boolean {
  try {
    check();
    return true;
  } catch {
    return false;
  }
}
