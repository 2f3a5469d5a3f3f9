import { utimesSync, writeFileSync } from 'node:fs';
import t from 'tap';
import { Retention } from '../../../../sidecar/usage/delivery/retention.js';
import { segmentPath, type Position } from '../../../../sidecar/usage/spool-format.js';
import { FakeClock } from '../../../support/fake-clock.js';
import { RecordingLog } from '../../../support/in-process.js';

const HOUR = 3_600_000;
const NOW = Date.parse('2026-10-03T00:00:00Z');

t.test('a clock that jumps ahead makes nothing old, and elapsed time does', async (t) => {
  const dir = t.testdir();
  for (const [segment, age] of [
    [1, 11],
    [2, 9],
    [3, 0],
  ] as const) {
    const path = segmentPath(dir, segment);
    writeFileSync(path, '.');
    utimesSync(path, (NOW - age * HOUR) / 1000, (NOW - age * HOUR) / 1000);
  }
  const clock = new FakeClock();
  const prunes: Position[] = [];
  let jumped = 0;
  const retention = new Retention({
    dir,
    spool: {
      position: { segment: 3, offset: 0 },
      prune: (before) => {
        prunes.push(before);
        return Promise.resolve(before.segment);
      },
    },
    keepFrom: () => ({ segment: Infinity, offset: 0 }),
    keepMs: 10 * HOUR,
    keepBytes: Infinity,
    date: () => NOW + clock.now() + jumped,
    clock,
    log: new RecordingLog(),
  });
  jumped = 1000 * HOUR;
  await retention.prune();
  t.strictSame(prunes.splice(0), [{ segment: 2, offset: 0 }], 'what was old at the start is removed');
  clock.advance(2 * HOUR);
  await retention.prune();
  t.strictSame(prunes.splice(0), [{ segment: 3, offset: 0 }]);
  jumped = -1000 * HOUR;
  await retention.prune();
  t.strictSame(prunes.splice(0), [], 'a clock that is set back keeps more');
  await retention.stop();
});
