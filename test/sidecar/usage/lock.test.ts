import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { DurableSpool } from '../../../sidecar/usage/durable-spool.js';
import { lockDir, lockOwner, type Locked } from '../../../sidecar/usage/lock.js';
import { FakeClock } from '../../support/fake-clock.js';
import { OPTIONS } from '../../support/spool-world.js';

async function taken(dir: string): Promise<Extract<Locked, { kind: 'locked' }>> {
  const locked = await lockDir(dir);
  if (locked.kind !== 'locked') throw new Error(`held by ${locked.pid}`);
  return locked;
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
  t.equal(await lockOwner(dir), process.pid, 'who released it before does not release it for another');
  await second.release();
  t.strictSame(readdirSync(dir), [], 'nothing is left');
});

t.test('of many that come together one has it', async (t) => {
  for (const stale of ['', '{"pid":0}', 'null', 'null', 'null', 'null', 'null', 'null']) {
    const dir = t.testdir();
    writeFileSync(join(dir, 'lock'), stale);
    const all = await Promise.all(Array.from({ length: 8 }, () => lockDir(dir)));
    t.equal(all.filter(({ kind }) => kind === 'locked').length, 1);
    for (const locked of all) if (locked.kind === 'locked') await locked.release();
    t.strictSame(readdirSync(dir), []);
  }
});

t.test('the lock of a process that was killed is taken over', async (t) => {
  const dir = t.testdir();
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
  await once(child, 'spawn');
  const mine = await taken(dir);
  const path = join(dir, 'lock');
  const owner = JSON.parse(readFileSync(path, 'utf8')) as object;
  await mine.release();
  writeFileSync(path, JSON.stringify({ ...owner, pid: child.pid }));
  t.equal(await lockOwner(dir), undefined, 'an id given out again is another process');
  const stat = readFileSync(`/proc/${child.pid}/stat`, 'utf8');
  const started = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
  writeFileSync(path, JSON.stringify({ ...owner, pid: child.pid, started }));
  t.strictSame(await lockDir(dir), { kind: 'held', pid: child.pid });
  child.kill('SIGKILL');
  await once(child, 'close');
  await (await taken(dir)).release();
  t.notOk(existsSync(path));
});

t.test('a spool that another process writes is not opened, nor is one left locked that cannot be', async (t) => {
  const dir = t.testdir({ usage: {} });
  const parts = { clock: new FakeClock() };
  const first = await DurableSpool.open(join(dir, 'usage'), OPTIONS, parts);
  t.equal(first.kind, 'open');
  t.strictSame(await DurableSpool.open(join(dir, 'usage'), OPTIONS, parts), { kind: 'held', pid: process.pid });
  if (first.kind === 'open') await first.spool.close();
  t.equal(await lockOwner(join(dir, 'usage')), undefined);
});
