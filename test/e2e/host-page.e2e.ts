/**
 * The installation that docs/deploy.md describes, on Debian 13: the page's blocks run as they are written, from Node to the
 * commands on the host, and systemd starts the unit. From npm’s registry the host gets what the package needs; once systemd runs, it
 * has no network.
 *
 * One thing is replaced: nodejs.org, which no test reaches, by an archive of the same form with npm’s Node and npm. The blocks for
 * a GPU are not run.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, cpSync, existsSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { env } from 'node:process';
import t, { type Test } from 'tap';
import { VERSION } from '../../sidecar/lib/version.js';
import { readPages } from '../docs/pages.js';
import { sourceRoot } from '../support/source-root.js';
import { prepareRoot, rootOf } from './debian-root.js';
import { Host, type Ran } from './host.js';
import { CACHE, nodeBinary, unpack } from './npm-packages.js';

const NODE = '24.21.0';
const NPM = '11.21.2';
/** In the host: the programs and files that stand for nodejs.org. */
const SITE = '/nodejs.org';
const CHAT = 'curl --unix-socket';

/** The blocks that the page has for a host without a GPU, in order. */
function blocks(): readonly string[] {
  const page = readPages().find(({ path }) => path === 'docs/deploy.md');
  const { prose = [], blocks: all = [] } = page ?? {};
  const lineOf = (heading: string): number => prose.indexOf(heading);
  return all
    .filter(({ line }) => line > lineOf('## Start') && line < lineOf('### Two on one machine'))
    .filter(({ info }) => info.startsWith('sh ') && info !== 'sh not-run: needs a GPU')
    .map(({ text }) => text);
}

/** Node and npm in an archive as nodejs.org has it. */
function nodeArchive(): string {
  const name = `node-v${NODE}-linux-x64`;
  const archive = join(CACHE, `${name}.tar.xz`);
  if (existsSync(archive)) return archive;
  const binary = nodeBinary(NODE);
  const folder = join(CACHE, name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(join(folder, 'lib/node_modules'), { recursive: true });
  cpSync(dirname(binary), join(folder, 'bin'), { recursive: true });
  unpack(`npm@${NPM}`, join(folder, 'lib/node_modules/npm'));
  symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(folder, 'bin/npm'));
  execFileSync('tar', ['-C', CACHE, '-I', 'xz -0', '-cf', `${archive}.part`, name]);
  rmSync(folder, { recursive: true });
  renameSync(`${archive}.part`, archive);
  return archive;
}

/** Puts into the host what the page expects there, the tarball, and what stands for nodejs.org. */
function prepare({ files }: Host): void {
  mkdirSync(join(files, 'root'));
  execFileSync(process.execPath, ['.ci/package.mjs', join(files, 'root')], { cwd: sourceRoot, stdio: 'ignore' });
  rmSync(join(files, 'root/package'), { recursive: true });
  const site = join(files, SITE);
  mkdirSync(join(site, 'bin'), { recursive: true });
  const archive = nodeArchive();
  copyFileSync(archive, join(site, `node-v${NODE}-linux-x64.tar.xz`));
  const sums = execFileSync('sha256sum', [`node-v${NODE}-linux-x64.tar.xz`], { cwd: site, encoding: 'utf8' });
  writeFileSync(join(site, 'SHASUMS256.txt'), `${sums}${'0'.repeat(64)}  node-v${NODE}.pkg\n`);
  const curl = `#!/bin/sh
case $1 in -fsSLO) cp "${SITE}/\${2##*/}" . ;; -fsSL) cat "${SITE}/\${2##*/}" ;; *) exit 2 ;; esac\n`;
  writeFileSync(join(site, 'bin/curl'), curl, { mode: 0o755 });
}

t.test('the page’s blocks install, start and prove a sidecar on Debian 13', (t) => {
  prepareRoot('x64');
  // The kept root has more than a host has.
  return installs(t, rootOf('x64'), 'apt-get purge -qq --yes curl git make libatomic1');
});

async function installs(t: Test, root: string, first: string): Promise<void> {
  const host = new Host(t, root);
  prepare(host);
  const all = blocks();
  const [node = '', installed = '', unit = '', model = '', commands = ''] = all;
  t.equal(all.length, 5);
  t.ok(node.includes(`node-v${NODE}-linux-x64`) && commands.includes(CHAT), 'the page has the blocks in this order');
  // Neither root has systemd.
  passes(t, 'a host', host.run(`${first}; apt-get update -qq; apt-get install -qq --yes systemd`));

  passes(t, 'Node', host.run(node, { PATH: `${SITE}/bin:/usr/sbin:/usr/bin:/sbin:/bin` }));
  t.equal(host.run('node --version').output.trim(), `v${NODE}`);
  passes(t, 'the package', host.run(installed, registry(host)));
  await host.start(t);
  passes(t, 'the unit, its user, its settings', host.run(unit));
  t.equal(
    passes(t, 'systemd takes the unit', host.run('systemd-analyze verify /etc/systemd/system/ra-sidecar.service')),
    '',
  );
  passes(t, 'the model, and the start', host.run(model), () => host.run('journalctl --no-pager -u ra-sidecar').output);
  t.match(host.run('systemctl show ra-sidecar -P ActiveState -P UnitFileState').output, /^active\n+enabled\n$/);
  t.equal(host.run('stat -c %U:%G:%a /run/ra-sidecar/http.sock').output, 'ra-sidecar:ra-sidecar:660\n');
  t.match(host.run('curl -sS http://127.0.0.1:9091/readyz').output, /^\{"status":"ready"/);
  t.match(
    host.run('cat $(grep -lz dist/engine/main.js$ /proc/[0-9]*/cmdline | sed s/cmdline/maps/)').output,
    `/opt/ra-sidecar-${VERSION}/node_modules/ra-sidecar/engine/native/bin/ra-engine.linux-x64.node`,
    'the engine has its addon from the tarball',
  );

  const at = commands.indexOf(CHAT);
  const printed = passes(t, 'keys create, usage, doctor', host.run(commands.slice(0, at)));
  t.notMatch(printed, /warning: /, 'the key works at once');
  t.match(printed, / ok, \d+ warnings?, 0 failures/);
  const [key = ''] = /ra-key-\S+/.exec(printed) ?? [];
  t.match(passes(t, 'a chat', host.run(commands.slice(at).replace('ra-…', key))), /"object":"chat.completion"/);

  passes(t, 'reload and stop', host.run('systemctl reload ra-sidecar && systemctl stop ra-sidecar'));
  t.match(
    host.run('systemctl show ra-sidecar -P ActiveState -P Result').output,
    /^(inactive\n+success|success\n+inactive)\n$/,
  );
}

/** What npm needs for a registry with a certificate that this machine was told to trust. */
function registry({ files }: Host): Readonly<Record<string, string>> {
  const trusted = env['NODE_EXTRA_CA_CERTS'];
  if (trusted === undefined) return {};
  copyFileSync(trusted, join(files, SITE, 'trusted.pem'));
  return { NODE_EXTRA_CA_CERTS: `${SITE}/trusted.pem` };
}

/** Returns what was printed. */
function passes(t: Test, what: string, { code, output }: Ran, more: () => string = () => ''): string {
  if (code === 0) t.pass(what);
  else t.fail(what, { code, output: output.slice(-8000), more: more().slice(-8000) });
  return output;
}
