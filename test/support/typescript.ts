/** The compiler, as CommonJS: an import of it first searches its nine megabytes for the names that it exports, which takes a second. */
import { createRequire } from 'node:module';
import type TypeScript from 'typescript';

export const ts = createRequire(import.meta.url)('typescript') as typeof TypeScript;
