import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import { slope, Watch } from '../../../bench/soak/watch.js';

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

t.test('it sees memory and open files of a process, and nothing of one that is gone', async (t) => {
  const child = spawn(process.execPath, ['-e', 'process.stdin.resume()'], { stdio: ['pipe', 'ignore', 'ignore'] });
  const gone = once(child, 'exit');
  await once(child, 'spawn');
  const watch = new Watch(child.pid ?? 0, 3_600_000);
  child.kill('SIGKILL');
  await gone;
  watch.end();
  const [alive, dead] = watch.samples;
  t.ok((alive?.bytes.sidecar ?? 0) > 1_000_000);
  t.ok((alive?.files.sidecar ?? 0) >= 3);
  t.strictSame([dead?.bytes, dead?.files], [{}, {}]);
});
