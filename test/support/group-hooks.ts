/** Module hooks of a group of test files: `tap`, imported by one of them, is that file’s own subtest. */
import type { ResolveHook } from 'node:module';

const ROOT = new URL('./group-root.js', import.meta.url).href;

export const resolve: ResolveHook = (specifier, context, next) =>
  specifier === 'tap' && context.parentURL?.endsWith('.test.js') === true
    ? { url: `${ROOT}?of=${encodeURIComponent(context.parentURL)}&root`, shortCircuit: true }
    : next(specifier, context);
