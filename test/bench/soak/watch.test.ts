import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import { grown, slope, Watch, type Sample } from '../../../bench/soak/watch.js';
import { asLong } from '../../support/expensive-schemas.js';
import { SHORT } from '../../support/open-stream.js';
import { chatOnly, Sidecar } from '../../support/sidecar.js';

t.test('the slope of the least-squares line', async (t) => {
  t.equal(
    slope([
      [0, 1],
      [1, 3],
      [2, 5],
    ]),
    2,
  );
  t.equal(
    slope([
      [0, 4],
      [10, 4],
      [20, 4],
    ]),
    0,
  );
  t.ok(
    Math.abs(
      slope([
        [0, 0],
        [1, 2],
        [2, 1],
        [3, 3],
      ]) - 0.8,
    ) < 1e-9,
  );
  t.ok(Number.isNaN(slope([[0, 1]])));
});

t.test('growth is what the least-squares line rises by after the warm-up', async (t) => {
  const of = (...bytes: (number | undefined)[]): Sample[] =>
    bytes.map((sidecar, at) => ({ seconds: at * 5, bytes: sidecar === undefined ? {} : { sidecar }, files: {} }));
  t.equal(grown(of(0, 100, 100, 100), 'sidecar', 0.25), 0, 'growth during the warm-up does not count');
  t.equal(grown(of(0, 100, 110, 120), 'sidecar', 0.25), 20);
  t.equal(grown(of(100, undefined, 120), 'sidecar', 0), 20, 'a process that was absent for a while');
  t.ok(Number.isNaN(grown(of(100), 'sidecar', 0)), 'seen once');
  t.ok(Number.isNaN(grown(of(100, 100), 'engine', 0)), 'never seen');
});

t.test('it distinguishes the two prompt hosts', async (t) => {
  const sidecar = await Sidecar.start(t, { config: await chatOnly(1) });
  // The host for long bodies starts with the first one.
  t.equal((await sidecar.post('/chat/completions', asLong(JSON.stringify(SHORT)))).status, 200);
  const watch = new Watch(sidecar.pid, 3_600_000);
  watch.end();
  const seen = watch.samples[0]?.bytes ?? {};
  t.strictSame(Object.keys(seen).sort(), ['engine', 'long prompt host', 'short prompt host', 'sidecar']);
});

t.test('measures memory and open files of a process, and nothing of one that has ended', async (t) => {
  const child = spawn(process.execPath, ['-e', 'process.stdin.resume(); console.log()'], {
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  const gone = once(child, 'exit');
  // A process that was only spawned has almost no memory: wait until its program runs.
  await once(child.stdout, 'data');
  const watch = new Watch(child.pid ?? 0, 3_600_000);
  child.kill('SIGKILL');
  await gone;
  watch.end();
  const [alive, dead] = watch.samples;
  t.ok((alive?.bytes.sidecar ?? 0) > 1_000_000);
  t.ok((alive?.files.sidecar ?? 0) >= 3);
  t.strictSame([dead?.bytes, dead?.files], [{}, {}]);
});
