/**
 * The module `tap` for a test file that shares its process with others: the subtest of that file in place of tap’s own
 * root. Loaded once for each file, since test/support/group-hooks.ts gives each its own URL.
 */
import { rootOfFile } from './group-files.js';

export * from 'tap';
export default rootOfFile();
