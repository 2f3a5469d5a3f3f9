import { spawnSync } from 'node:child_process';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { applySettings } from '../../../engine/native/apply.js';
import { sourceRoot } from '../../support/source-root.js';

const PACKAGE = join(sourceRoot, 'node_modules/node-llama-cpp/llama');
const CLI = fileURLToPath(new URL('../../../engine/native/cli.js', import.meta.url));
const FILE = 'CMakeLists.txt';

const SETTING = 'set(GGML_OPENMP OFF CACHE BOOL "" FORCE)\n';
const FILL = /file\(READ "llama\.cpp.*\n(?:string\(.*\n){2}(?:if [^]*?endif\(\)\n){2}/;

/** A copy of the package’s settings as npm installs them. */
function copied(t: Test): { folder: string; read: () => string } {
  const folder = t.testdir();
  const file = join(folder, FILE);
  copyFileSync(join(PACKAGE, FILE), file);
  // Those of this checkout may have been changed already.
  writeFileSync(file, readFileSync(file, 'utf8').replace(SETTING, '').replace(FILL, ''));
  return { folder, read: () => readFileSync(file, 'utf8') };
}

t.test('the package’s own settings are changed, once', (t) => {
  const { folder, read } = copied(t);
  for (const round of [1, 2]) {
    t.strictSame(applySettings(folder), { kind: 'applied' });
    t.equal(read().split(SETTING).length, 2, `round ${round}`);
    t.equal(read().split(FILL).length, 2, `round ${round}`);
  }
  t.end();
});

t.test('another source is refused with an error, and not changed', (t) => {
  const { folder, read } = copied(t);
  writeFileSync(join(folder, FILE), read().replace('add_subdirectory("llama.cpp")', 'somethingElse'));
  const before = read();
  t.strictSame(applySettings(folder), { kind: 'unknown', file: FILE });
  const { status, stderr } = spawnSync(process.execPath, [CLI, 'apply', folder], { encoding: 'utf8' });
  t.equal(status, 1);
  t.match(stderr, `does not fit this node-llama-cpp: ${FILE}`);
  t.equal(read(), before);
  t.end();
});
