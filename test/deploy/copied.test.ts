/**
 * The installation that docs/deploy.md describes: its blocks from the package to the unit's start run in a folder in place of `/`, and
 * what the unit then starts serves the console and a chat. npm is replaced by a program that unpacks the tarball and finds the
 * packages that it needs in this repository; the user and systemd are left out. test/e2e/host-page.e2e.ts runs the blocks with all
 * of these, and from the registry.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { readPages } from '../docs/pages.js';
import { shortDir } from '../support/short-dir.js';
import { sourceRoot } from '../support/source-root.js';
import { unit } from './unit-file.js';

/** The folders of the host that the blocks name. */
const HOST = /(?<![\w/.])\/(opt|etc|srv)(?=\/)/g;

/** The blocks from the package's installation to the unit's start, in order, without those for a GPU. */
function blocks(): readonly string[] {
  const page = readPages().find(({ path }) => path === 'docs/deploy.md');
  return (page?.blocks ?? [])
    .filter(({ info }) => info === 'sh not-run: run by test/deploy/copied.test.ts')
    .map(({ text }) => text);
}

/** Programs that take the place of the host's own, first in the PATH. */
function programs(folder: string): void {
  mkdirSync(folder);
  const write = (name: string, text: string): void => {
    writeFileSync(join(folder, name), `#!/bin/sh\nset -eu\n${text}\n`);
    chmodSync(join(folder, name), 0o755);
  };
  const linked = `for each in ${sourceRoot}/node_modules/* ${sourceRoot}/node_modules/@*; do ln -sfn "$each" "$to/"; done`;
  write(
    'npm',
    `[ "$1 $2 $4 $5" = 'install --prefix --no-audit --no-fund' ]
to="$3/node_modules"; mkdir -p "$to"; ${linked}
mkdir "$to/ra-sidecar" && tar xzf "$6" -C "$to/ra-sidecar" --strip-components=1`,
  );
  write('systemctl', 'exit 0');
  write('systemd-sysusers', 'exit 0');
}

/** Runs the blocks with `root` in place of `/`, in the folder of the tarball. */
function install(t: Test): string {
  const root = mkdtempSync(join(tmpdir(), 'ra-copied-'));
  t.teardown(() => rmSync(root, { recursive: true, force: true }));
  programs(join(root, 'bin'));
  execFileSync(process.execPath, ['.ci/package.mjs', root], { cwd: sourceRoot, stdio: 'ignore' });
  const all = blocks();
  t.equal(all.length, 3);
  for (const text of all)
    execFileSync('sh', ['-euc', text.replace(HOST, (path) => `${root}${path}`)], {
      cwd: root,
      stdio: 'pipe',
      env: { ...process.env, PATH: `${join(root, 'bin')}:${process.env['PATH'] ?? ''}` },
    });
  return root;
}

t.test(
  'what the page installs serves the console and a chat, with its settings and as its unit starts it',
  async (t) => {
    const root = install(t);
    t.strictSame(readdirSync(join(root, 'etc/ra-sidecar')), ['ra-sidecar.env', 'ra-sidecar.jsonc']);
    t.strictSame(readdirSync(join(root, 'etc/systemd/system')), ['ra-sidecar.service']);
    const placed = (text: string): string => text.replace(HOST, (path) => `${root}${path}`);
    const settings = join(root, 'etc/ra-sidecar/ra-sidecar.jsonc');
    writeFileSync(settings, readFileSync(settings, 'utf8').replace(/"\/(etc|srv)\//g, `"${root}/$1/`));
    const dataDir = join(root, 'data');
    const socket = join(shortDir(t), 'http.sock');
    const lines = [...(unit('ra-sidecar').get('Environment') ?? [])].map(
      (line) => placed(line).split('=') as [string, string],
    );
    const environment = {
      ...process.env,
      ...Object.fromEntries(lines),
      RA_DATA_DIR: dataDir,
      RA_LISTEN_SOCKET: socket,
    };
    const [, script = '', ...command] = placed(unit('ra-sidecar').get('ExecStart')?.[0] ?? '').split(' ');
    const [, key = ''] =
      /(ra-\S+)/.exec(
        execFileSync(process.execPath, [script, 'keys', 'create', '--account', 'acme', '--models', 'all'], {
          env: environment,
          encoding: 'utf8',
        }),
      ) ?? [];

    const child = spawn(process.execPath, [script, ...command], {
      cwd: root,
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...environment, RA_OPERATORS_PORT: '0' },
    });
    const ended = once(child, 'close');
    t.teardown(async () => {
      child.kill('SIGKILL');
      await ended;
    });
    let printed = '';
    for await (const text of child.stderr.setEncoding('utf8')) {
      printed += String(text);
      if (/operators' listener: .*\n[^]*\n\n/.test(printed)) break;
    }
    const [, operators = ''] = /operators' listener: +(\S+)\/metrics/.exec(printed) ?? [];
    t.match(await (await fetch(`${operators}/console`)).text(), /<html/, printed);
    const body = JSON.stringify({ model: 'chat', max_tokens: 4, messages: [{ role: 'user', content: 'Hello' }] });
    const address = ['--unix-socket', socket, 'http://localhost/v1/chat/completions'];
    const fields = ['-H', `Authorization: Bearer ${key}`, '-H', 'Content-Type: application/json', '-d', body];
    t.match(execFileSync('curl', ['-sS', ...address, ...fields], { encoding: 'utf8' }), /"chat.completion"/);
  },
);
