import t from 'tap';
import { change, compared, inTurn, verdict, type Run, type State } from '../../../bench/support/in-turn.js';

const run = (perSecond: number): Run => ({ perSecond, p50: 1, p99: 1 });
const rate = ({ perSecond }: Run): number => perSecond;

t.test('states run in turn, each equally often first, with new processes in each life', async (t) => {
  const seen: string[] = [];
  let started = 0;
  let open = 0;
  const state = (name: string): State => ({
    name,
    start: () => {
      started += 1;
      open += 1;
      return Promise.resolve({
        run: () => {
          seen.push(name);
          return Promise.resolve(run(seen.length));
        },
        close: () => {
          open -= 1;
          return Promise.resolve();
        },
      });
    },
  });
  let atEnd = 0;
  const runs = await inTurn([state('a'), state('b')], { lives: 2, rounds: 2 }, () => {
    atEnd = open;
    return Promise.resolve();
  });
  t.equal(seen.join(''), 'abbabaab');
  t.equal(started, 4);
  t.equal(open, 0);
  t.equal(atEnd, 2, 'while the last processes run');
  t.strictSame(
    runs.get('a')?.map((life) => life.map(rate)),
    [
      [1, 4],
      [6, 7],
    ],
  );
});

t.test('what was started is closed if a run fails', async (t) => {
  let closed = 0;
  const close = (): Promise<void> => {
    closed += 1;
    return Promise.resolve();
  };
  const good: State = { name: 'good', start: () => Promise.resolve({ run: () => Promise.resolve(run(1)), close }) };
  const bad: State = { name: 'bad', start: () => Promise.reject(new Error('no process')) };
  await t.rejects(inTurn([good, bad], { lives: 1, rounds: 1 }), { message: 'no process' });
  t.equal(closed, 1);
});

t.test('states are compared within one round, and a life has the median of its rounds', async (t) => {
  const runs = new Map([
    ['base', [[run(100), run(200), run(400)], [run(10)]]],
    ['other', [[run(90), run(220), run(440)], [run(9)]]],
  ]);
  const found = compared(runs, 'other', 'base', rate);
  t.strictSame(found.each, [1.1, 0.9]);
  t.equal(change({ ratio: 0.988, each: [0.97, 1.004] }), '-1.2 % (-3.0 to 0.4)');
});

t.test('a difference is reported only if it exceeds that of two equal states', async (t) => {
  const twins = { ratio: 1, each: [0.95, 1.02] };
  const of = (ratio: number): string => verdict({ ratio, each: [ratio] }, twins, 0.03);
  t.equal(of(0.98), 'Held');
  t.equal(of(1.04), 'Not distinguished');
  t.equal(of(0.96), 'Not distinguished');
  t.equal(of(0.9), 'Missed');
});
