/**
 * The packed package as a user installs it, from npm’s registry into an empty folder: `npx ra-sidecar` serves the
 * embedded model, and the two commands that it prints work.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
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

t.test('npx of the tarball', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'ra-npx-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  execFileSync(process.execPath, ['.ci/package.mjs', dir], { cwd: sourceRoot, stdio: 'ignore' });
  rmSync(join(dir, 'package'), { recursive: true });
  execFileSync('npm', ['install', '--no-audit', '--no-fund', './ra-sidecar-0.1.0.tgz'], { cwd: dir, stdio: 'ignore' });

  const { packages } = JSON.parse(readFileSync(join(dir, 'node_modules/.package-lock.json'), 'utf8')) as Installed;
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
  const [mib = ''] = execFileSync('du', ['-sm', 'node_modules'], { cwd: dir, encoding: 'utf8' }).split('\t');
  t.ok(Number(mib) < MOST_MIB, `${mib} MiB`);

  const child = spawn('npx', ['--no-install', 'ra-sidecar', 'serve'], {
    cwd: dir,
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...process.env, RA_LISTEN_PORT: '0', RA_OPERATORS_PORT: '0', RA_DATA_DIR: join(dir, 'data') },
  });
  t.teardown(() => signalGroup(child.pid ?? 0, 'SIGKILL'));
  let printed = '';
  child.stderr.setEncoding('utf8');
  for await (const text of child.stderr) {
    printed += String(text);
    if (/^curl .*"questions".*$/m.test(printed)) break;
  }
  const commands = printed.split('\n').filter((line) => line.startsWith('curl '));
  t.equal(commands.length, 2);
  const [chat, decision] = commands.map((line) =>
    execFileSync('sh', ['-c', line], { encoding: 'utf8', stdio: 'pipe' }),
  );
  t.match(chat, /I am the seedling|seedling/i);
  t.match(chat, /data: \[DONE\]/);
  t.match(decision, /"refund"/);
  const ended = once(child, 'exit');
  signalGroup(child.pid ?? 0, 'SIGTERM');
  await ended;
});
