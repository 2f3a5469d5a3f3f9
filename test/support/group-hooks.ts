/**
 * Module hooks of a process that runs test files: `tap`, imported by one of them, is that file’s own subtest, and imported by another
 * module the root of all files.
 */
import type { ResolveHook } from 'node:module';

const ROOT = new URL('./group-root.js', import.meta.url).href;

export const resolve: ResolveHook = (specifier, context, next) => {
  if (specifier !== 'tap') return next(specifier, context);
  const from = context.parentURL ?? '';
  return {
    url: /\.(?:test|e2e)\.js$/.test(from) ? `${ROOT}?of=${encodeURIComponent(from)}` : ROOT,
    shortCircuit: true,
  };
};
