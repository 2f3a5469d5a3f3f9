import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import { grown, slope, Watch, type Sample } from '../../../bench/soak/watch.js';
import { chatOnly, Sidecar } from '../../support/sidecar.js';

t.test('the slope of the line nearest to the points', async (t) => {
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

t.test('growth is what the nearest line rises by once it is warm', async (t) => {
  const of = (...bytes: (number | undefined)[]): Sample[] =>
    bytes.map((sidecar, at) => ({ seconds: at * 5, bytes: sidecar === undefined ? {} : { sidecar }, files: {} }));
  t.equal(grown(of(0, 100, 100, 100), 'sidecar', 0.25), 0, 'not what warms up');
  t.equal(grown(of(0, 100, 110, 120), 'sidecar', 0.25), 20);
  t.equal(grown(of(100, undefined, 120), 'sidecar', 0), 20, 'one that was gone for a while');
  t.ok(Number.isNaN(grown(of(100), 'sidecar', 0)), 'seen once');
  t.ok(Number.isNaN(grown(of(100, 100), 'engine', 0)), 'never seen');
});

t.test('it distinguishes the two prompt hosts', async (t) => {
  const sidecar = await Sidecar.start(t, { config: await chatOnly(1) });
  const watch = new Watch(sidecar.pid, 3_600_000);
  watch.end();
  const seen = watch.samples[0]?.bytes ?? {};
  t.strictSame(Object.keys(seen).sort(), ['engine', 'long prompt host', 'short prompt host', 'sidecar']);
});

t.test('it sees memory and open files of a process, and nothing of one that is gone', async (t) => {
  const child = spawn(process.execPath, ['-e', 'process.stdin.resume(); console.log()'], {
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  const gone = once(child, 'exit');
  // Spawned is not started: the memory of a process that only begins is next to nothing.
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
