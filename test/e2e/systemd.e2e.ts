import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import t from 'tap';
import { unit, UNIT } from '../deploy/unit-file.js';
import { eventually } from '../support/processes.js';
import { shortDir } from '../support/short-dir.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';
import { sourceRoot } from '../support/source-root.js';

/** systemd’s exposure level, out of 100: 19 for this unit, 92 for one without hardening. */
const MOST_EXPOSED = 20;

for (const name of ['ra-sidecar.service', 'ra-sidecar@a.service']) {
  t.test(`systemd takes ${name}`, async (t) => {
    const dir = shortDir(t);
    // It checks that the program exists.
    const text = readFileSync(UNIT, 'utf8').replace('/usr/bin/node', process.execPath);
    writeFileSync(join(dir, name.replace('@a', '@')), text);
    const file = join(dir, name);
    const { status, stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', file], { encoding: 'utf8' });
    t.equal(stderr, '', 'without a word');
    t.equal(status, 0);
  });
}

t.test('systemd accepts ra-sidecar-nvidia.service', (t) => {
  const file = join(shortDir(t), 'ra-sidecar-nvidia.service');
  const text = readFileSync(join(dirname(UNIT), 'ra-sidecar-nvidia.service'), 'utf8');
  writeFileSync(file, text.replace('/usr/bin/nvidia-modprobe -c0', `${process.execPath} -c0`));
  const { status, stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', file], { encoding: 'utf8' });
  t.strictSame([status, stderr], [0, '']);
  t.end();
});

t.test('its exposure level is low', async (t) => {
  const rated = spawnSync('systemd-analyze', ['security', '--offline=true', `--threshold=${MOST_EXPOSED}`, UNIT], {
    encoding: 'utf8',
  });
  t.equal(rated.status, 0, rated.stdout);
});

/** The system calls of a name in a filter: of a group all those that it has. */
function callsOf(name: string): readonly string[] {
  if (!name.startsWith('@')) return [name];
  const printed = execFileSync('systemd-analyze', ['syscall-filter', name], { encoding: 'utf8' });
  // The group's name, then its members, indented, and comments.
  const members = [...printed.matchAll(/^ +([\w@-]+)$/gm)].map(([, member = '']) => member);
  return members.flatMap(callsOf);
}

t.test('its filter lets a vision process confine itself, and what that one may still call', async (t) => {
  const allowed = new Set<string>();
  for (const line of unit('ra-sidecar').get('SystemCallFilter') ?? []) {
    const denies = line.startsWith('~');
    for (const call of line.replace('~', '').split(' ').flatMap(callsOf)) {
      if (denies) allowed.delete(call);
      else allowed.add(call);
    }
  }
  t.notOk(allowed.has('setuid'), 'the groups were read');
  const source = readFileSync(join(sourceRoot, 'engine/native/sandbox.cpp'), 'utf8');
  const wanted = [...source.matchAll(/\bSYS_(\w+)/g)].map(([, call = '']) => call);
  t.ok(wanted.includes('seccomp') && wanted.includes('fcntl'), 'and the calls');
  t.strictSame(
    // It also lowers its priority.
    [...wanted, 'setpriority'].filter((call) => !allowed.has(call)),
    [],
  );
});

t.test('systemd’s own program can write to its socket', async (t) => {
  const socket = join(shortDir(t), 'notify');
  const listener = spawn('socat', ['-u', `UNIX-RECV:${socket}`, 'STDOUT'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const gone = once(listener, 'exit');
  t.teardown(async () => {
    listener.kill();
    await gone;
  });
  let reported = '';
  listener.stdout.setEncoding('utf8').on('data', (text: string) => (reported += text));
  await eventually('it listens', () => existsSync(socket));
  const sidecar = await Sidecar.start(t, { config: await chatOnly(1), environment: { NOTIFY_SOCKET: socket } });
  await eventually('ready', () => reported.includes('READY=1'));
  sidecar.child.kill('SIGTERM');
  await eventually('stopping', () => reported.includes('STOPPING=1'));
  t.strictSame(await sidecar.exited(), { code: 0, signal: null });
});

t.test('its user can be created', async (t) => {
  const root = shortDir(t);
  mkdirSync(join(root, 'etc'));
  const input = readFileSync(UNIT.replace('.service', '.sysusers'));
  execFileSync('systemd-sysusers', [`--root=${root}`, '-'], { input, stdio: ['pipe', 'ignore', 'pipe'] });
  t.match(readFileSync(join(root, 'etc/passwd'), 'utf8'), /^ra-sidecar:x:\d+:\d+:ra-sidecar:/m);
});
