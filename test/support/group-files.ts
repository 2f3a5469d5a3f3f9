/**
 * Runs several test files in one process, one after the other, each as a subtest with the file’s name. A process, tap
 * in it and modules that many files import cost half a second a file, more than most unit tests take.
 */
import { register } from 'node:module';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import tap, { type Test } from 'tap';
import { shareLanes } from './shared-lanes.js';

let current: Test | undefined;

/** The subtest of the file that is being loaded. Throws outside a group. */
export function rootOfFile(): Test {
  if (!current) throw new Error('no file of a group is being loaded');
  return current;
}

/**
 * Runs the files, as paths from the repository’s root, each with its limit, s, if it has one. A file that fails to load
 * fails its own subtest. At its limit the test that runs fails, and the file’s next test or the next file begins.
 */
export function runGroup(files: readonly (readonly [file: string, limitS?: number])[]): void {
  shareLanes(tap, 'common');
  register('./group-hooks.js', import.meta.url);
  for (const [file, limitS] of files) {
    void tap.test(file, limitS === undefined ? {} : { timeout: limitS * 1000 }, async (t) => {
      current = t;
      await import(pathToFileURL(resolve(file)).href);
    });
  }
}
