import t from 'tap';
import { Handover } from '../../../engine/loop/handover.js';
import { Bench, job, StepTime } from '../../support/step-bench.js';
import { FakeClock } from '../../support/fake-clock.js';

const STEP = 40;
/** A quarter of it. */
const WITHIN = 10;

/** How a wait that began now ended, once it did. */
function waiting(handover: Handover): { over: boolean; readonly end: Promise<void> } {
  const state = { over: false, end: handover.wait() };
  void state.end.then(() => (state.over = true));
  return state;
}

t.test('a wait is over when a job came for each seat', async (t) => {
  const clock = new FakeClock();
  const handover = new Handover(clock);
  t.ok(handover.expects(STEP));
  handover.left(2, STEP);
  const wait = waiting(handover);
  clock.advance(WITHIN / 2);
  handover.came();
  await new Promise(setImmediate);
  t.notOk(wait.over, 'one is still to come');
  handover.came();
  await wait.end;
  t.equal(clock.now(), WITHIN / 2);
  t.equal(clock.pending, 0, 'and no timer is left');
  await handover.wait();
  t.equal(clock.pending, 0, 'nobody is left to wait for');
});

t.test('it is over after a quarter of a step, whoever has not come by then', async (t) => {
  const clock = new FakeClock();
  const handover = new Handover(clock);
  handover.left(1, STEP);
  const wait = waiting(handover);
  clock.advance(WITHIN - 0.1);
  await new Promise(setImmediate);
  t.notOk(wait.over);
  clock.advance(0.1);
  await wait.end;
  await handover.wait();
  t.equal(clock.pending, 0, 'a seat is waited for once');
});

t.test('steps too short for a timer are not held up', async (t) => {
  const clock = new FakeClock();
  const handover = new Handover(clock);
  t.notOk(handover.expects(3.9));
  t.ok(handover.expects(4));
  t.notOk(handover.expects(0), 'nor is one whose length nobody knows');
  handover.left(1, 3.9);
  await handover.wait();
  t.equal(clock.pending, 0);
});

t.test('it waits where most seats were taken over in time, with or without a wait', (t) => {
  const clock = new FakeClock();
  const handover = new Handover(clock);
  const seat = (afterMs: number): boolean => {
    handover.left(1, STEP);
    clock.advance(afterMs);
    handover.came();
    clock.advance(STEP);
    return handover.expects(STEP);
  };
  const late = Array.from({ length: 8 }, () => seat(WITHIN));
  t.same(late.indexOf(false), 2, 'three that came late are enough');
  t.notOk(late.includes(true, 3));
  const again = Array.from({ length: 16 }, () => seat(WITHIN - 1));
  t.ok(again.at(-1), 'and many that came in time');
  t.ok(again.indexOf(true) > 3, 'not the first of them');
  for (let i = 0; i < 64; i++) {
    handover.left(1, STEP);
    clock.advance(STEP);
  }
  t.notOk(handover.expects(STEP), 'nobody comes');
  handover.came();
  t.notOk(handover.expects(STEP), 'one who comes when no seat was left says nothing');
  t.end();
});

t.test('in the loop: a job that comes when it hears of a seat takes part in the coming step', async (t) => {
  /** Steps without it between the last one of the job before and its first; it comes so many turns after it was told. */
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
  t.ok((await missed(40, 4)) > 0, 'nobody waits longer than that');
  t.ok((await missed(3, 1)) > 0, 'short steps do not wait');
});

/** Two jobs, the first of which goes on; its steps move the clock, and nothing else does. Resolves when the other is over. */
async function oneLeft(): Promise<{ readonly bench: Bench; readonly clock: FakeClock }> {
  const clock = new FakeClock();
  const bench = new Bench(2, undefined, { clock, contextPerSeat: 200 });
  bench.decoder.onStep = () => clock.advance(STEP);
  bench.loop.generate(1, job(1, { maxTokens: 100 }));
  bench.loop.generate(2, job(1, { maxTokens: 3 }));
  await bench.ends(2);
  return { bench, clock };
}

t.test('in the loop: it goes on as soon as the job is there', async (t) => {
  const { bench, clock } = await oneLeft();
  t.equal(clock.pending, 1, 'nobody moves the clock that it waits by');
  bench.loop.generate(3, job(3, { maxTokens: 100 }));
  await bench.ends(3, 'started');
  t.equal(clock.pending, 0);
  await bench.loop.close();
});

t.test('in the loop: closed, it does not wait on', async (t) => {
  const { bench, clock } = await oneLeft();
  t.equal(clock.pending, 1);
  await bench.loop.close();
  t.equal(clock.pending, 0);
});

t.test('in the loop: where nothing else runs nothing waits', async (t) => {
  const clock = new FakeClock();
  const bench = new Bench(2, undefined, { clock });
  bench.decoder.onStep = () => clock.advance(STEP);
  await bench.run(1, () => bench.loop.generate(1, job(1)));
  await new Promise(setImmediate);
  t.equal(clock.pending, 0);
  t.equal(bench.text(1), 'abcd');
});
