/**
 * The extent of the tests. `make test` runs a short form, test/support/test-groups.ts lists what it leaves out; `make test-long`,
 * which a release requires and a nightly workflow runs, sets TEST_LONG and runs all cases and many rounds.
 */
import { env } from 'node:process';

export const LONG = env['TEST_LONG'] === '1';

/** Rounds of a property, a random walk or a load. */
export function rounds({ short, long }: { readonly short: number; readonly long: number }): number {
  return LONG ? long : short;
}

/** All cases in the long form; otherwise the named ones, which represent the others. */
export function cases<T>(all: readonly T[], short: (one: T, index: number) => boolean): readonly T[] {
  return LONG ? all : all.filter(short);
}
