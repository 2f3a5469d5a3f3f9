/**
 * The packed package as a user gets it, with what it needs from npm’s registry: `npx` of the tarball and its global installation
 * serve the embedded model, and the two commands that each prints work.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { printedCommands } from '../support/printed-commands.js';
import { signalGroup } from '../support/processes.js';
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
const NAME = 'ra-sidecar-0.1.0.tgz';
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
  serves(t, 'npx', ['--yes', `./${NAME}`, 'serve'], { npm_config_cache: join(dir, 'cache') }),
);

t.test('a global installation', async (t) => {
  const prefix = join(dir, 'global');
  execFileSync('npm', ['install', '--global', '--prefix', prefix, '--no-audit', '--no-fund', TARBALL], {
    stdio: 'ignore',
  });
  await serves(t, join(prefix, 'bin/ra-sidecar'), ['serve']);
});

async function serves(
  t: Test,
  command: string,
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<void> {
  const cwd = mkdtempSync(join(dir, 'run-'));
  // npx takes an absolute path for a program.
  copyFileSync(TARBALL, join(cwd, NAME));
  const child = spawn(command, args, {
    cwd,
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
    env: {
      ...process.env,
      RA_LISTEN_PORT: '0',
      RA_OPERATORS_PORT: '0',
      RA_DATA_DIR: join(cwd, 'data'),
      ...environment,
    },
  });
  t.teardown(() => signalGroup(child.pid ?? 0, 'SIGKILL'));
  const [chat, decision] = await printedCommands(child.stderr);
  t.match(chat, /seedling/i);
  t.match(chat, /data: \[DONE\]/);
  t.match(decision, /"refund"/);
  const ended = once(child, 'exit');
  signalGroup(child.pid ?? 0, 'SIGTERM');
  await ended;
}
