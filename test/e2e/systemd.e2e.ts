import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import t from 'tap';
import { UNIT } from '../deploy/unit-file.js';
import { eventually } from '../support/processes.js';
import { shortDir } from '../support/short-dir.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';

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
