import t from 'tap';
import { RefillWait } from '../../../engine/scheduler/step-loop.js';
import { Bench, job, StepTime } from '../../support/step-bench.js';
import { FakeClock } from '../../support/fake-clock.js';

const STEP = 40;
/** A quarter of it. */
const WITHIN = 10;

/** A wait for so many seats that begins now, and whether it has ended. */
function waiting(refillWait: RefillWait, seats: number): { over: boolean; readonly end: Promise<void> } {
  const state = { over: false, end: refillWait.wait(seats, STEP) };
  void state.end.then(() => (state.over = true));
  return state;
}

t.test('a wait ends when jobs arrived for the seats', async (t) => {
  const clock = new FakeClock();
  const refillWait = new RefillWait(clock);
  t.ok(refillWait.expects(STEP));
  for (const jobs of [[1, 1, 1], [2, 1], [4]]) {
    const wait = waiting(refillWait, 3);
    for (const seats of jobs) {
      await new Promise(setImmediate);
      t.notOk(wait.over, jobs.join());
      clock.advance(1);
      refillWait.arrived(seats);
    }
    await wait.end;
  }
  t.equal(clock.now(), 6);
  t.equal(clock.pending, 0, 'and no timer is left');
});

t.test('it ends after a quarter of a step, and never after more than 25 ms', async (t) => {
  const clock = new FakeClock();
  const refillWait = new RefillWait(clock);
  const wait = waiting(refillWait, 1);
  clock.advance(WITHIN - 0.1);
  await new Promise(setImmediate);
  t.notOk(wait.over);
  clock.advance(0.1);
  await wait.end;
  const long = refillWait.wait(1, 10_000);
  clock.advance(25);
  await long;
  t.equal(clock.pending, 0);
});

t.test('steps too short for a timer are not delayed', (t) => {
  const refillWait = new RefillWait(new FakeClock());
  t.notOk(refillWait.expects(7.9));
  t.ok(refillWait.expects(8));
  t.notOk(refillWait.expects(0), 'nor is one of unknown length');
  t.end();
});

/** For each of so many opportunities with one seat, whether it waited; `comes`: whether a job arrived. */
async function chances(
  refillWait: RefillWait,
  clock: FakeClock,
  many: number,
  comes: () => boolean,
): Promise<boolean[]> {
  const waited: boolean[] = [];
  for (let i = 0; i < many; i += 1) {
    const expects = refillWait.expects(STEP);
    waited.push(expects);
    const end = expects ? refillWait.wait(1, STEP) : undefined;
    if (comes()) refillWait.arrived(1);
    clock.advance(STEP);
    await end;
  }
  return waited;
}

t.test('it waits where most seats were refilled, and otherwise probes from time to time', async (t) => {
  const clock = new FakeClock();
  const refillWait = new RefillWait(clock);
  const alone = await chances(refillWait, clock, 40, () => false);
  t.same(alone.slice(0, 4), [true, true, true, false], 'three without a job are enough');
  t.equal(alone.slice(4).filter(Boolean).length, 4, 'of 36 every eighth is a probe');
  const busy = await chances(refillWait, clock, 160, () => true);
  t.notOk(busy[0]);
  t.ok(
    busy.slice(7).every((waited) => waited),
    'a successful probe is followed by another, and so on',
  );
  let turn = 0;
  const mixed = await chances(refillWait, clock, 160, () => turn++ % 3 === 0);
  t.ok(
    mixed.slice(40).filter(Boolean).length <= 40,
    'where one seat in three is refilled it waits for at most a third of them',
  );
});

t.test('of many seats it waits for as many as are likely to be refilled', async (t) => {
  const clock = new FakeClock();
  const refillWait = new RefillWait(clock);
  const first = refillWait.wait(8, STEP);
  clock.advance(WITHIN);
  await first;
  const second = waiting(refillWait, 8);
  for (let i = 0; i < 7; i += 1) refillWait.arrived(1);
  await second.end;
  t.equal(clock.now(), WITHIN, 'seven of eight, after one in vain');
  refillWait.arrived(1);
  t.equal(clock.pending, 0, 'the last job arrives after the wait');
});

t.test('in the loop: a job that arrives when a seat is reported free takes part in the next step', async (t) => {
  /**
   * Steps between the last one of the previous job and the first one of the next, which arrives so many turns after the
   * report.
   */
  const missed = async (stepMs: number, turns: number): Promise<number> => {
    const clock = new StepTime();
    const bench = new Bench(2, undefined, { clock, prefixReuse: 'off', contextPerSeat: 200 });
    bench.decoder.onStep = () => {
      clock.ms += stepMs;
    };
    const send = (left: number): void => {
      if (left > 0) setImmediate(send, left - 1);
      else bench.loop.generate(3, job(3, { maxTokens: 2 }));
    };
    bench.onOutputs = (outputs) => {
      if (outputs.some(({ id, kind }) => id === 2 && kind === 'done')) send(turns);
    };
    bench.loop.generate(1, job(1, { maxTokens: 40 }));
    bench.loop.generate(2, job(1, { maxTokens: 8 }));
    await Promise.all([1, 3].map((id) => bench.ends(id)));
    const { steps } = bench.decoder;
    const first = steps.findIndex((parts) => parts.some(({ tokens }) => tokens.length === 3));
    const last = steps.slice(0, first).findLastIndex((parts) => parts.some(({ sequence }) => sequence === 1));
    return first - last - 1;
  };
  t.equal(await missed(40, 1), 0);
  t.ok((await missed(40, 4)) > 0, 'it does not wait longer');
  t.ok((await missed(3, 1)) > 0, 'short steps do not wait');
});

/** Two jobs, the first of which continues; only its steps advance the clock. Resolves when the other has ended. */
async function oneLeft(): Promise<{ readonly bench: Bench; readonly clock: FakeClock }> {
  const clock = new FakeClock();
  const bench = new Bench(2, undefined, { clock, contextPerSeat: 200 });
  bench.decoder.onStep = () => clock.advance(STEP);
  bench.loop.generate(1, job(1, { maxTokens: 100 }));
  bench.loop.generate(2, job(1, { maxTokens: 3 }));
  await bench.ends(2);
  return { bench, clock };
}

t.test('in the loop: it continues as soon as the job has arrived', async (t) => {
  const { bench, clock } = await oneLeft();
  t.equal(clock.pending, 1, 'the clock of the wait does not advance');
  bench.loop.generate(3, job(3, { maxTokens: 100 }));
  await bench.ends(3, 'started');
  t.equal(clock.pending, 0);
  await bench.loop.close();
});

t.test('in the loop: how long a step that failed took is not learned', async (t) => {
  const clock = new FakeClock();
  const bench = new Bench(2, undefined, { clock, contextPerSeat: 200 });
  // So long that it waits, but not if shorter steps were among them.
  const stepMs = 8;
  bench.decoder.onStep = (step) => {
    if (step === 10) bench.decoder.failing.add(1);
    // The results of a run's last step, which failed, follow those of the steps before at once.
    else clock.advance(stepMs);
  };
  bench.loop.generate(1, job(1, { maxTokens: 100 }));
  bench.loop.generate(2, job(1, { maxTokens: 100 }));
  await bench.ends(2, 'failed');
  t.equal(clock.pending, 1);
  await bench.loop.close();
});

t.test('in the loop: after close it does not wait', async (t) => {
  const { bench, clock } = await oneLeft();
  const steps = bench.decoder.steps.length;
  t.equal(clock.pending, 1);
  await bench.loop.close();
  t.equal(clock.pending, 0);
  t.equal(bench.decoder.steps.length, steps, 'nor run another step');
});

t.test('in the loop: several seats are waited for after a job of several seats', async (t) => {
  const clock = new FakeClock();
  const bench = new Bench(4, undefined, { clock, contextPerSeat: 200 });
  bench.decoder.onStep = () => clock.advance(STEP);
  bench.loop.generate(1, job(1, { maxTokens: 100 }));
  bench.loop.generate(2, job(1, { maxTokens: 5, n: 3, seats: 3 }));
  await bench.ends(2, 'seatFreed');
  bench.loop.generate(3, job(3, { maxTokens: 100 }));
  await bench.ends(2);
  t.equal(clock.pending, 1, 'the two that began on a copy of its prompt have ended together');
  bench.loop.generate(4, job(3, { maxTokens: 100 }));
  await new Promise(setImmediate);
  t.equal(clock.pending, 1, 'one more is to come');
  bench.loop.generate(5, job(3, { maxTokens: 100 }));
  await bench.ends(5, 'started');
  t.equal(clock.pending, 0);
  await bench.loop.close();
});

t.test('in the loop: without other jobs it does not wait', async (t) => {
  const clock = new FakeClock();
  const bench = new Bench(2, undefined, { clock });
  bench.decoder.onStep = () => clock.advance(STEP);
  await bench.run(1, () => bench.loop.generate(1, job(1)));
  await new Promise(setImmediate);
  t.equal(clock.pending, 0);
  t.equal(bench.text(1), 'abcd');
});
