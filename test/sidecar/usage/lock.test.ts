import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { Spool } from '../../../sidecar/usage/spool.js';
import { lockDir, lockOwner, type Lock } from '../../../sidecar/usage/lock.js';
import { FakeClock } from '../../support/fake-clock.js';
import { eventually } from '../../support/processes.js';
import { OPTIONS } from '../../support/spool-harness.js';

async function taken(dir: string): Promise<Lock> {
  const locked = await lockDir(dir);
  if (locked.kind !== 'locked') throw new Error(`held by ${locked.pid}`);
  return locked;
}

/** A lock file of a live process. */
function ownerFile(pid: number): string {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const started = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
  const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  return JSON.stringify({ pid, started, boot });
}

t.test('one at a time, until it is released', async (t) => {
  const dir = t.testdir();
  t.equal(await lockOwner(dir), undefined);
  const first = await taken(dir);
  t.strictSame(await lockDir(dir), { kind: 'held', pid: process.pid });
  t.equal(await lockOwner(dir), process.pid);
  await first.release();
  await first.release();
  const second = await taken(dir);
  await first.release();
  t.equal(await lockOwner(dir), process.pid, 'a second release does not release another’s lock');
  await second.release();
  t.strictSame(readdirSync(dir), [], 'nothing is left');
});

t.test('of several at once one gets it', async (t) => {
  for (const stale of ['', '{"pid":0}', 'null', 'null', 'null', 'null', 'null', 'null']) {
    const dir = t.testdir();
    writeFileSync(join(dir, 'lock'), stale);
    const all = await Promise.all(Array.from({ length: 8 }, () => lockDir(dir)));
    t.equal(all.filter(({ kind }) => kind === 'locked').length, 1);
    for (const locked of all) if (locked.kind === 'locked') await locked.release();
    t.strictSame(readdirSync(dir), []);
  }
});

t.test('the lock of a killed process is taken over', async (t) => {
  const dir = t.testdir();
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
  await once(child, 'spawn');
  const mine = await taken(dir);
  const path = join(dir, 'lock');
  const owner = JSON.parse(readFileSync(path, 'utf8')) as object;
  await mine.release();
  writeFileSync(path, JSON.stringify({ ...owner, pid: child.pid }));
  t.equal(await lockOwner(dir), undefined, 'a reused process id is another process');
  writeFileSync(path, ownerFile(child.pid ?? 0));
  t.strictSame(await lockDir(dir), { kind: 'held', pid: child.pid });
  child.kill('SIGKILL');
  await once(child, 'close');
  await (await taken(dir)).release();
  t.notOk(existsSync(path));
});

t.test('deleting a lock file frees nothing, and its owner writes it again', async (t) => {
  const dir = t.testdir();
  const mine = await taken(dir);
  t.strictSame(await mine.check(), { kind: 'kept' });
  rmSync(join(dir, 'lock'));
  t.strictSame(await lockDir(dir), { kind: 'held', pid: process.pid });
  t.equal(await lockOwner(dir), process.pid);
  t.strictSame(await mine.check(), { kind: 'restored' });
  t.match(JSON.parse(readFileSync(join(dir, 'lock'), 'utf8')), { pid: process.pid });
  t.strictSame(await mine.check(), { kind: 'kept' });
  await mine.release();
  t.strictSame(readdirSync(dir), []);
});

t.test('a folder that was created again is locked too, unless another process was faster', async (t) => {
  const dir = join(t.testdir(), 'usage');
  mkdirSync(dir);
  const mine = await taken(dir);
  // Kept under another name, so that the new folder has another inode.
  renameSync(dir, `${dir}.old`);
  mkdirSync(dir);
  t.strictSame(await mine.check(), { kind: 'restored' });
  t.strictSame(await lockDir(dir), { kind: 'held', pid: process.pid });

  renameSync(dir, `${dir}.older`);
  mkdirSync(dir);
  const other = await taken(dir);
  t.strictSame(await mine.check(), { kind: 'held', pid: process.pid });
  const theirs = readFileSync(join(dir, 'lock'), 'utf8');
  await mine.release();
  t.equal(readFileSync(join(dir, 'lock'), 'utf8'), theirs, 'the other’s lock stays');
  await other.release();
});

t.test('a lock file that names another live process is not overwritten; one of an ended process is', async (t) => {
  const dir = t.testdir();
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
  await once(child, 'spawn');
  const mine = await taken(dir);
  writeFileSync(join(dir, 'lock'), ownerFile(child.pid ?? 0));
  t.strictSame(await mine.check(), { kind: 'held', pid: child.pid });
  child.kill('SIGKILL');
  await once(child, 'close');
  t.strictSame(await mine.check(), { kind: 'restored' });
  await mine.release();
});

t.test('another’s claim over the lock file ends the lock, also if its process is not visible here', async (t) => {
  for (const [pid, boot] of [
    [1, (JSON.parse(ownerFile(process.pid)) as { boot: string }).boot],
    // No Linux has a process with this number.
    [2 ** 31 - 1, 'another-machine'],
  ] as const) {
    const dir = t.testdir();
    const path = join(dir, 'lock');
    const mine = await taken(dir);
    const theirs = JSON.stringify({ pid, started: '1', boot, claim: 'theirs' });
    writeFileSync(path, theirs);
    t.strictSame(await mine.check(), { kind: 'held', pid: 0 });
    t.equal(readFileSync(path, 'utf8'), theirs, 'their file stays');
    rmSync(path);
    t.strictSame(await mine.check(), { kind: 'held', pid: 0 }, 'also once they have released it');
    t.notOk(existsSync(path));
    writeFileSync(path, theirs);
    await mine.release();
    t.equal(readFileSync(path, 'utf8'), theirs);
    await (await taken(dir)).release();
  }
});

t.test('a lock file that cannot be read is written again', async (t) => {
  const dir = t.testdir();
  const mine = await taken(dir);
  for (const text of ['', '{', 'null', '{"pid":0,"claim":"theirs"}']) {
    writeFileSync(join(dir, 'lock'), text);
    t.strictSame(await mine.check(), { kind: 'restored' }, text);
  }
  await mine.release();
});

t.test('a process that has ended and was not yet collected by its parent owns nothing', async (t) => {
  const dir = t.testdir();
  // The shell becomes a program that never collects its inherited child.
  const parent = spawn('sh', ['-c', 'sleep 600 & echo $!; exec sleep 600'], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => parent.kill('SIGKILL'));
  const pid = Number(String(await once(parent.stdout, 'data')));
  await eventually('changed', () => readFileSync(`/proc/${parent.pid}/comm`, 'utf8') === 'sleep\n');
  process.kill(pid, 'SIGKILL');
  await eventually('ended', () => / Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8')));
  writeFileSync(join(dir, 'lock'), ownerFile(pid));
  t.equal(await lockOwner(dir), undefined);
  await (await taken(dir)).release();
});

t.test(
  'a spool that another process writes is not opened, and one that cannot be opened is not left locked',
  async (t) => {
    const dir = t.testdir({ usage: {} });
    const parts = { clock: new FakeClock() };
    const first = await Spool.open(join(dir, 'usage'), OPTIONS, parts);
    t.equal(first.kind, 'open');
    t.strictSame(await Spool.open(join(dir, 'usage'), OPTIONS, parts), { kind: 'held', pid: process.pid });
    if (first.kind === 'open') await first.spool.close();
    t.equal(await lockOwner(join(dir, 'usage')), undefined);
  },
);
