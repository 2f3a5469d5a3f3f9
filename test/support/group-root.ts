/**
 * What `tap` is to a test file that shares its process with others: the subtest of that file, in the place of tap's own root.
 * Loaded once for each file, since test/support/group-hooks.ts gives each a URL of its own.
 */
import { rootOfFile } from './group-files.js';

export * from 'tap';
export default rootOfFile();
