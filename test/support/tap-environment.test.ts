import { cwd, env } from 'node:process';
import t from 'tap';

/** Linux starts no process with a longer string in its environment (MAX_ARG_STRLEN, 32 pages): `spawn E2BIG`. */
const MAX_STRING_BYTES = 128 * 1024;

/** As long a path to a checkout as `make test` shall bear. */
const LONG_ROOT = 250;

t.test('what tap hands each test in its environment fits, however long the path to the checkout', (t) => {
  const files = (env._TAPJS_PROCESSINFO_COV_EXCLUDE_FILES_ ?? '').split('\n');
  t.ok(files.length > 5, 'tap names the files that it starts, and what the coverage leaves out');
  const bytes = files.join('\n').length + files.length * (LONG_ROOT - cwd().length);
  t.ok(bytes < MAX_STRING_BYTES, `${bytes} bytes: keep coverage-exclude in package.json to our own files`);
  t.end();
});
