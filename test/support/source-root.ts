import { resolve } from 'node:path';

/** The repository's root: tests run from dist/test. */
export const sourceRoot = resolve(import.meta.dirname, '../../..');
