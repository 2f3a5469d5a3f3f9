import { readdirSync, readFileSync } from 'node:fs';
import { matchesGlob } from 'node:path';
import t from 'tap';

/** Linux starts no process with a longer string in its environment (MAX_ARG_STRLEN, 32 pages): `spawn E2BIG`. */
const MAX_STRING_BYTES = 128 * 1024;

/** The longest path of a checkout that `make coverage` must support. */
const LONG_ROOT = 190;

interface Settings {
  readonly tap: { readonly 'coverage-exclude': readonly string[] };
}

t.test('what tap’s runner passes to each test in its environment fits, however long the path to the checkout', (t) => {
  const root = new URL('../../../', import.meta.url);
  const { tap } = JSON.parse(readFileSync(new URL('package.json', root), 'utf8')) as Settings;
  const excluded = tap['coverage-exclude'];
  const files = ['dist/bench', 'dist/engine', 'dist/sidecar', 'dist/test', 'node_modules/node-llama-cpp/dist']
    .flatMap((folder) =>
      readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' }).map((path) => `${folder}/${path}`),
    )
    .filter((path) => path.endsWith('.js'))
    .filter((path) => path.endsWith('.test.js') || excluded.some((pattern) => matchesGlob(path, pattern)));
  t.ok(files.length > 100, 'it passes the files that it starts, and what the coverage leaves out');
  const bytes = files.reduce((sum, path) => sum + LONG_ROOT + path.length + 2, 0);
  t.ok(bytes < MAX_STRING_BYTES, `${bytes} bytes: keep coverage-exclude in package.json to the repository’s own files`);
  t.end();
});
