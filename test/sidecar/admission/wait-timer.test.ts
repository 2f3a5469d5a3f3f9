import t from 'tap';
import type { Overload } from '../../../sidecar/admission/overload.js';
import type { QueuedRequest } from '../../../sidecar/admission/queued-request.js';
import type { QueueState } from '../../../sidecar/admission/queue-state.js';
import { WaitTimer } from '../../../sidecar/admission/wait-timer.js';
import { FakeClock } from '../../support/fake-clock.js';

t.test('a wait that patience and checks extend is looked at ten times a second', async (t) => {
  const clock = new FakeClock();
  const state = { now: 0, free: 1, waiting: 1, classOf: () => ({ newestFirst: true }), accountOf: () => ({}) };
  let looks = 0;
  const ends: [number, string][] = [];
  const queue = {
    accrue: () => {
      looks += 1;
      state.now = clock.now();
    },
    timedOut: (_: QueuedRequest, reason: string) => ends.push([clock.now(), reason]),
  };
  const overload = { hopelessMs: () => 300 };
  const timer = new WaitTimer(clock, 1000, state as unknown as QueueState, overload as unknown as Overload, queue);
  const queued = { enteredAt: 0, queuedAt: 0, inQueueMs: 0, phase: 'unready', request: {}, returns: 0 };
  timer.arm(queued as unknown as QueuedRequest);
  while (ends.length === 0 && looks < 1000 && clock.step(60_000));
  t.strictSame(
    ends.map(([, reason]) => reason),
    ['wait'],
  );
  t.ok(ends[0]![0] >= 5000 && ends[0]![0] < 5200, `${ends[0]?.[0]} ms`);
  t.ok(looks < 80, `${looks} looks`);
});
