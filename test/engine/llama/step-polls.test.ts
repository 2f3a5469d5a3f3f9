/** How often a run is polled, and how late its steps are found, on a clock of whole milliseconds as timers have it. */
import t from 'tap';
import { StepPolls } from '../../../engine/llama/batch-decoder.js';

const EVERY_MS = 10;

/** Polls a run whose steps end at these times. `expectedMs`: the time of a step at first. */
function polled(ends: readonly number[], expectedMs: number): { polls: number; latest: number; polling: StepPolls } {
  const polling = new StepPolls(0, expectedMs, EVERY_MS);
  let [now, found, polls, latest] = [0, 0, 0, 0];
  while (found < ends.length) {
    now = Math.ceil(now + Math.max(1, Math.floor(polling.nextMs)));
    polls += 1;
    const ended = ends.filter((end) => end <= now).length;
    if (ended > found) latest = Math.max(latest, now - (ends[found] ?? 0));
    polling.polled(now, ended - found);
    found = ended;
  }
  return { polls, latest, polling };
}

/** The ends of so many steps of this length each. */
const steps = (count: number, ms: (step: number) => number): number[] => {
  let end = 0;
  return Array.from({ length: count }, (_, step) => (end += ms(step)));
};

t.test('steady steps are polled a few times each, and found soon', async (t) => {
  for (const ms of [12.3, 40, 150]) {
    const { polls, latest, polling } = polled(
      steps(100, () => ms),
      ms,
    );
    t.ok(polls <= 300, `${polls} polls of 100 steps of ${ms} ms`);
    t.ok(latest <= ms / 4 + 1, `found ${latest} ms after its end`);
    t.ok(Math.abs(polling.stepMs - ms) <= Math.max(2, ms / 8), `${polling.stepMs}`);
  }
});

t.test('steps that become shorter or longer are followed', async (t) => {
  const shorter = polled(
    steps(60, (step) => (step < 30 ? 80 : 40)),
    80,
  );
  t.ok(shorter.polls <= 150, `${shorter.polls} polls`);
  t.ok(shorter.latest <= 80, `found when the longer one would have ended: ${shorter.latest} ms`);
  t.ok(Math.abs(shorter.polling.stepMs - 40) <= 5, `${shorter.polling.stepMs}`);
  const longer = polled(
    steps(60, (step) => (step < 30 ? 40 : 160)),
    40,
  );
  t.ok(longer.latest <= 20, `${longer.latest} ms`);
});

t.test('one slow step does not delay the tokens of the steps after it', async (t) => {
  const slow = (ms: number): ReturnType<typeof polled> =>
    polled(
      steps(60, (step) => (step === 20 ? 5000 : ms)),
      ms,
    );
  const { latest } = slow(40);
  t.ok(latest <= 20, `${latest} ms`);
  t.ok(slow(0.5).latest <= EVERY_MS, 'nor where they are short');
  t.ok(polled([5000], 40).polling.stepMs <= 50, 'nor in the next run');
});

t.test('steps of which nothing is known are found within 8 ms', async (t) => {
  const { latest } = polled([30], Infinity);
  t.ok(latest <= 8, `${latest} ms`);
});

t.test('short steps are polled together', async (t) => {
  const { polls, latest } = polled(
    steps(1000, () => 0.5),
    0.5,
  );
  t.ok(polls >= 48 && polls <= 51, `${polls} polls of 500 ms`);
  t.ok(latest <= EVERY_MS);
});
