/**
 * The README’s start in a clone: `git clone` and `make run`, which installs from npm’s registry, builds and serves the embedded model;
 * the two commands that it prints work. The clone is of the last commit. What make is given besides is what two sidecars on one machine
 * cannot share.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { servesSeedling } from '../support/seedling-start.js';
import { sourceRoot } from '../support/source-root.js';

/** Without what `make e2e` gives to the commands that it runs. */
const environment = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !/^(MAKE|MFLAGS|NODE_LLAMA_CPP)/.test(name)),
);

t.test('make run in a fresh clone', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'ra-clone-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  const clone = join(dir, 'ra-sidecar');
  execFileSync('git', ['clone', '--quiet', sourceRoot, clone]);
  await servesSeedling(t, ['make', 'run'], clone, environment);
});
