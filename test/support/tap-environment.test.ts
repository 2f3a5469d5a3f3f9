import { cwd, env } from 'node:process';
import t from 'tap';

/** Linux starts no process with a longer string in its environment (MAX_ARG_STRLEN, 32 pages): `spawn E2BIG`. */
const MAX_STRING_BYTES = 128 * 1024;

/** The longest path of a checkout that `make test` must support. */
const LONG_ROOT = 250;

t.test('what tap passes to each test in its environment fits, however long the path to the checkout', (t) => {
  const files = (env._TAPJS_PROCESSINFO_COV_EXCLUDE_FILES_ ?? '').split('\n');
  t.ok(files.length > 5, 'tap passes the files that it starts, and what the coverage leaves out');
  const bytes = files.join('\n').length + files.length * (LONG_ROOT - cwd().length);
  t.ok(bytes < MAX_STRING_BYTES, `${bytes} bytes: keep coverage-exclude in package.json to the repository’s own files`);
  t.end();
});
