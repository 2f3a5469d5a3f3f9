/** The seats of a decision. Its answers are tested in test/sidecar/contracts, its price in billing.test.ts. */
import t from 'tap';
import { BilledHarness } from '../../support/billed-harness.js';
import { ACME } from '../../support/in-process.js';

const GRANT = 10n ** 12n;
const OTHER = { ...ACME, account: 'other', keyId: 'key-2' };

/** Lets all settled promises continue. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

t.test('questions that share decodes have a seat each, and each is available to others once it is freed', async (t) => {
  const harness = new BilledHarness(GRANT, { seats: 3, isolate: false });
  harness.ledger.grant(new Map([ACME, OTHER].map(({ account }) => [account, GRANT])));
  const asked = harness.ask({ route: 'decisions', questions: 3 });
  const job = (await harness.decisionEngine.scoring(0)).started();
  t.match(job.job, { isolate: false, seats: 3 });
  t.match(harness.queue('decide').snapshot(), { busy: 3, waiting: 0 });

  const others = [1, 2].map(() => harness.ask({ route: 'decisions', caller: OTHER }));
  await settled();
  t.match(harness.queue('decide').snapshot(), { busy: 3, waiting: 2 });
  job.answer(0, [0.5, 0.5]).seatFreed();
  const second = await harness.decisionEngine.scoring(1);
  t.match(second.job, { seats: 1 }, 'one question needs no second seat');
  t.ok(job.live, 'the first is not done yet');
  t.match(harness.queue('decide').snapshot(), { busy: 3, waiting: 1, released: {} });
  job.answer(1, [0.5, 0.5]).seatFreed();
  const third = await harness.decisionEngine.scoring(2);
  t.match(harness.queue('decide').snapshot(), { busy: 3, waiting: 0, released: {} });
  job.seatFreed();
  t.match(harness.queue('decide').snapshot(), { busy: 3 }, 'the last seat ends with the job');

  for (const each of [second, third]) each.started().answer(0, [0.5, 0.5]).done();
  for (const { over } of others) t.equal(await over, 200);
  t.match(harness.queue('decide').snapshot(), { busy: 1 });
  job.answer(2, [0.5, 0.5]).done();
  t.equal(await asked.over, 200);
  t.match(harness.queue('decide').snapshot(), { busy: 0, waiting: 0 });
});

t.test('if there are more questions than free seats some share one, and none is taken later', async (t) => {
  const harness = new BilledHarness(GRANT, { seats: 3, isolate: false });
  harness.ledger.grant(new Map([ACME, OTHER].map(({ account }) => [account, GRANT])));
  const running = harness.ask({ route: 'decisions', caller: OTHER });
  const first = (await harness.decisionEngine.scoring(0)).started();
  const asked = harness.ask({ route: 'decisions', questions: 128 });
  const job = await harness.decisionEngine.scoring(1);
  t.equal(job.job.seats, 2, 'the free seats, and no more');
  first.answer(0, [0.5, 0.5]).done();
  t.equal(await running.over, 200);
  job.started();
  for (let i = 0; i < 128; i += 1) job.answer(i, [0.5, 0.5]);
  job.done();
  t.equal(await asked.over, 200);
});

t.test('questions that share no decode use one seat together', async (t) => {
  const harness = new BilledHarness(GRANT, { seats: 3 });
  const asked = harness.ask({ route: 'decisions', questions: 3 });
  const job = (await harness.decisionEngine.scoring(0)).started();
  t.match(job.job, { isolate: true, seats: 1 });
  t.match(harness.queue('decide').snapshot(), { busy: 1 });
  for (const question of [0, 1, 2]) job.answer(question, [0.5, 0.5]);
  job.done();
  t.equal(await asked.over, 200);
});
