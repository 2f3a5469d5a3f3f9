/**
 * The packed package as a user gets it, with what it needs from npm’s registry: `npx` of the tarball and its global installation
 * serve the embedded model, and the two commands that each prints work.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { VERSION } from '../../sidecar/lib/version.js';
import { servesSeedling } from '../support/seedling-start.js';
import { sourceRoot } from '../support/source-root.js';

/**
 * Size of the installation on a host with a CPU, MiB: 120, of which 49 are two CPU backends. An unmodified
 * node-llama-cpp takes 783.
 */
const MOST_MIB = 150;

interface Installed {
  readonly packages: Readonly<Record<string, { readonly hasInstallScript?: boolean }>>;
}

const dir = mkdtempSync(join(tmpdir(), 'ra-npx-'));
const NAME = `ra-sidecar-${VERSION}.tgz`;
const TARBALL = join(dir, NAME);
t.teardown(() => rmSync(dir, { recursive: true, force: true }));
execFileSync(process.execPath, ['.ci/package.mjs', dir], { cwd: sourceRoot, stdio: 'ignore' });
rmSync(join(dir, 'package'), { recursive: true });

t.test('an installation', (t) => {
  const cwd = mkdtempSync(join(dir, 'install-'));
  execFileSync('npm', ['install', '--no-audit', '--no-fund', TARBALL], { cwd, stdio: 'ignore' });
  const { packages } = JSON.parse(readFileSync(join(cwd, 'node_modules/.package-lock.json'), 'utf8')) as Installed;
  const names = Object.keys(packages);
  t.strictSame(
    names.filter((name) => packages[name]?.hasInstallScript),
    [],
    'no install script',
  );
  t.strictSame(
    names.filter((name) => /cuda|vulkan/.test(name)),
    [],
    'no backend of a GPU',
  );
  const [mib = ''] = execFileSync('du', ['-sm', 'node_modules'], { cwd, encoding: 'utf8' }).split('\t');
  t.ok(Number(mib) < MOST_MIB, `${mib} MiB`);
  t.end();
});

t.test('npx of the tarball', (t) =>
  // In a cache of its own, which has nothing of an earlier tarball of this name.
  serves(t, ['npx', '--yes', `./${NAME}`, 'serve'], { npm_config_cache: join(dir, 'cache') }),
);

t.test('a global installation', async (t) => {
  const prefix = join(dir, 'global');
  execFileSync('npm', ['install', '--global', '--prefix', prefix, '--no-audit', '--no-fund', TARBALL], {
    stdio: 'ignore',
  });
  await serves(t, [join(prefix, 'bin/ra-sidecar'), 'serve']);
});

/** In a folder of its own, with the tarball in it: npx takes an absolute path for a program. */
function serves(t: Test, command: readonly [string, ...string[]], environment: NodeJS.ProcessEnv = {}): Promise<void> {
  const cwd = mkdtempSync(join(dir, 'run-'));
  copyFileSync(TARBALL, join(cwd, NAME));
  return servesSeedling(t, command, cwd, { ...process.env, RA_DATA_DIR: join(cwd, 'data'), ...environment });
}
