import { fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import t from 'tap';
import { hasEnded, messageOf } from '../../../bench/support/children.js';

const folder = t.testdir({
  'says.js': `process.send({ port: 7 }); process.once('disconnect', () => process.exit(0));`,
  'ends.js': `process.exit(3);`,
});

t.test('the next message of a process', async (t) => {
  const child = fork(join(folder, 'says.js'));
  t.strictSame(await messageOf(child), { port: 7 });
  const gone = once(child, 'exit');
  child.disconnect();
  await gone;
  await t.rejects(messageOf(child), 'one that has ended sends none');
});

t.test('a process that ends before its message', async (t) => {
  await t.rejects(messageOf(fork(join(folder, 'ends.js'))));
});

t.test('a process that a signal has ended has ended', async (t) => {
  const child = spawn('sleep', ['1000']);
  t.notOk(hasEnded(child));
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
  t.ok(hasEnded(child));
  t.equal(child.exitCode, null);
});
