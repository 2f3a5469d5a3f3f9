/** For what all test files of a process share: a function that runs when the last of them has ended. */
import tap from 'tap';
import { root } from './runtime.js';
import { isStandInForTap } from './tap-module.js';

/** Of a file that runs alone, tap is the root. */
export const processRoot: { teardown(fn: () => void | Promise<void>): void } = isStandInForTap() ? root : tap;
