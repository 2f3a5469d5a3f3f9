/**
 * The module `tap` in a process that runs test files: the subtest of the file that imports it. Loaded once for each file, since
 * test/support/group-hooks.ts gives each its own URL; without one, for a module that files share, the root of all files.
 */
import { rootOfFile } from './group-files.js';
import { root } from './runtime.js';

export default new URL(import.meta.url).search === '' ? root : rootOfFile();
