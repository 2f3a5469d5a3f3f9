/** What a chat reserves of quotas and of credit while its replies grow, and that nothing of it stays after its end. */
import t from 'tap';
import { PART_TOKENS } from '../../../sidecar/api/usage-session.js';
import { BilledHarness, RATES, type RunningRequest } from '../../support/billed-harness.js';
import type { FakeGeneration } from '../../support/fake-engine.js';
import { ACME } from '../../support/in-process.js';

const GRANT = 10n ** 12n;
const PROMPT = 10;
const first = PROMPT + PART_TOKENS;

const quota = (tokens: number): typeof ACME => ({ ...ACME, tokensPerDay: tokens });

function left(harness: BilledHarness, caller: typeof ACME): number | undefined {
  return harness.quotas.left(caller)[0]?.remaining;
}

t.test(
  'a reply reserves its prompt and a part, then another one each time that it asks, and settles what it used',
  async (t) => {
    const harness = new BilledHarness(GRANT);
    const caller = quota(1000);
    const asked = harness.ask({ caller, maxTokens: 900, stream: true });
    const job = await harness.chatEngine.generation(0);
    t.equal(job.job.limit, PART_TOKENS);
    t.equal(left(harness, caller), 1000 - first);
    job.started().piece(200).needsTokens(200);
    t.same(job.limits, [{ tokens: 2 * PART_TOKENS, last: false }]);
    t.equal(left(harness, caller), 1000 - first - PART_TOKENS);
    job.piece(200).needsTokens(400).piece(300).needsTokens(700);
    t.same(job.limits.slice(1), [
      { tokens: 3 * PART_TOKENS, last: false },
      { tokens: 900, last: true },
    ]);
    t.equal(left(harness, caller), 1000 - PROMPT - 900);
    job.finished().done();
    t.equal(await asked.over, 200);
    t.equal(left(harness, caller), 1000 - PROMPT - 700);
    t.equal(harness.quotas.outstanding, 0);
  },
);

t.test('where a part is refused the replies get what is left and end, and the quota is not passed', async (t) => {
  for (const more of [0, 1, 100, PART_TOKENS - 1]) {
    const harness = new BilledHarness(GRANT, { seats: 2 });
    const all = 2 * first + more;
    const caller = quota(all);
    const [cut, other] = [harness.ask({ caller, maxTokens: 900 }), harness.ask({ caller, maxTokens: 900 })];
    const job = await harness.chatEngine.generation(0);
    job.started().piece(200).needsTokens(200);
    t.same(job.limits, [{ tokens: PART_TOKENS + more, last: true }]);
    t.equal(left(harness, caller), 0);
    t.equal(await harness.ask({ caller, maxTokens: 900 }).over, 'quota_exceeded');
    const second = await harness.chatEngine.generation(1);
    second.started().piece(1).finished().done();
    job
      .piece(56 + more)
      .finished(0, 'length')
      .done();
    t.equal(await cut.over, 200);
    t.equal(await other.over, 200);
    t.equal(left(harness, caller), all - (first + more) - PROMPT - 1);
    t.match(harness.closes, [{ completionTokens: 1 }, { outcome: 'done', completionTokens: PART_TOKENS + more }]);
  }
});

t.test('tokens that credit does not pay for stay with the other callers of the quota', async (t) => {
  const price = (completion: number): bigint => BigInt(PROMPT) * RATES.input + BigInt(completion) * RATES.output;
  const caller = quota(2000);
  // Without more the last attempt of a search for it fails, otherwise an earlier one does.
  for (const more of [0, 7]) {
    const harness = new BilledHarness(price(PART_TOKENS + more), { creditInParts: true });
    const asked = harness.ask({ caller, maxTokens: 900 });
    const job = await harness.chatEngine.generation(0);
    job.started().piece(200).needsTokens(200);
    t.same(job.limits, [{ tokens: PART_TOKENS + more, last: true }]);
    t.equal(harness.balance, 0n);
    t.equal(left(harness, caller), 2000 - first - more);
    job.finished(0, 'length').done();
    await asked.over;
  }
  const poor = new BilledHarness(price(1));
  t.equal(await poor.ask({ caller, maxTokens: 900 }).over, 'insufficient_credit');
  t.equal(left(poor, caller), 2000);
  t.equal(poor.quotas.outstanding, 0);
});

t.test('a request whose prompt is made again has one reservation', async (t) => {
  const harness = new BilledHarness(GRANT);
  const caller = quota(1000);
  const asked = harness.ask({ caller, maxTokens: 900 });
  (await harness.chatEngine.generation(0)).failed('stale');
  const job = await harness.chatEngine.generation(1);
  t.equal(left(harness, caller), 1000 - first);
  job.started().piece(10).finished().done();
  t.equal(await asked.over, 200);
  t.equal(left(harness, caller), 1000 - PROMPT - 10);
  t.same([harness.quotas.outstanding, harness.ledger.outstanding], [0, 0]);
});

t.test('a recalled reply may have at once what is reserved for it, on lent seats and then in the queue', async (t) => {
  const harness = new BilledHarness(GRANT, { headroom: 0 });
  const caller = { ...quota(2000), weight: 1 };
  const asked = harness.ask({ caller, maxTokens: 900 });
  const recall = async (at: number): Promise<void> => {
    const other = harness.ask({ caller: { ...ACME, keyId: 'other' } });
    (await harness.chatEngine.generation(at)).started().piece(1).finished().done();
    await other.over;
  };
  for (const [recalls, limit] of [PART_TOKENS, 2 * PART_TOKENS, 3 * PART_TOKENS].entries()) {
    const job = await harness.chatEngine.generation(2 * recalls);
    t.match(job.job, { background: true, limit });
    job
      .started()
      .piece(limit - 50)
      .needsTokens(limit - 50);
    const next = Math.min(900, limit + PART_TOKENS);
    t.same(job.limits, [{ tokens: next, last: next === 900 }]);
    t.equal(left(harness, caller), 2000 - PROMPT - next);
    await recall(2 * recalls + 1);
  }
  const job = await harness.chatEngine.generation(6);
  t.match(job.job, { background: false, limit: undefined });
  job.started().piece(900).finished(0, 'length').done();
  t.equal(await asked.over, 200);
  t.equal(left(harness, caller), 2000 - PROMPT - 900);
  t.equal(harness.quotas.outstanding, 0);

  const two = harness.ask({ caller: { ...caller, keyId: 'two' }, maxTokens: 900, n: 2 });
  const first = await harness.chatEngine.generation(7);
  first.started().piece(300).needsTokens(300).finished(0, 'stop');
  await recall(8);
  const again = await harness.chatEngine.generation(9);
  t.equal(again.job.limit, PART_TOKENS, 'of several replies that did not end together, as before the first one');
  again.started().finished(0).finished(1).done();
  t.equal(await two.over, 200);
});

t.test('a gateway is refused by no quota, and what it asks counts in those of its account', async (t) => {
  const harness = new BilledHarness(GRANT);
  const own = { ...ACME, accountTokens: { tokensPerDay: 100 } };
  t.equal(left(harness, own), 100);
  const { vouched, ...through } = { ...ACME, keyId: 'gateway', vouched: true as const };
  const asked = harness.ask({ caller: { ...through, vouched }, maxTokens: 900 });
  const job = await harness.chatEngine.generation(0);
  t.equal(job.job.limit, undefined);
  job.started().piece(70).finished().done();
  t.equal(await asked.over, 200);
  t.equal(harness.balance, GRANT);
  t.equal(left(harness, own), 100 - PROMPT - 70);
});

t.test('a failed stream of a free model counts as little as its record does', async (t) => {
  const harness = new BilledHarness(GRANT, { free: true });
  const caller = quota(1000);
  const asked = harness.ask({ caller, maxTokens: 900, stream: true });
  const job = await harness.chatEngine.generation(0);
  job.started().piece(30).failed('failed');
  await asked.over;
  const [close] = harness.closes;
  t.match(close, { outcome: 'failed', price: { picodollars: '0' } });
  t.equal(left(harness, caller), 1000);
});

t.test('several replies share a reservation: those that have ended keep only what they used', async (t) => {
  const harness = new BilledHarness(GRANT);
  const caller = quota(5000);
  const asked = harness.ask({ caller, maxTokens: 900, n: 4 });
  const job = await harness.chatEngine.generation(0);
  t.equal(left(harness, caller), 5000 - PROMPT - 4 * PART_TOKENS);
  job.started().piece(5).finished(0).needsTokens(200).needsTokens(180);
  t.same(
    job.limits,
    [
      { tokens: 2 * PART_TOKENS, last: false },
      { tokens: 2 * PART_TOKENS, last: false },
    ],
    'two replies that ask together get one part',
  );
  t.equal(left(harness, caller), 5000 - PROMPT - 5 - 3 * 2 * PART_TOKENS);
  for (const choice of [1, 2, 3]) job.finished(choice);
  job.done();
  t.equal(await asked.over, 200);
  t.equal(left(harness, caller), 5000 - PROMPT - 5);
});

t.test('a reply that fits a part, and a caller without quotas, are given to the engine without a limit', async (t) => {
  const harness = new BilledHarness(GRANT, { seats: 2 });
  void harness.ask({ caller: quota(1000), maxTokens: PART_TOKENS });
  void harness.ask({ maxTokens: 900 });
  for (const index of [0, 1]) t.equal((await harness.chatEngine.generation(index)).job.limit, undefined);
  t.equal(harness.balance, GRANT - 2n * BigInt(PROMPT) * RATES.input - BigInt(PART_TOKENS + 900) * RATES.output);
});

t.test('a decision reserves exactly its tokens', async (t) => {
  const harness = new BilledHarness(GRANT);
  const caller = quota(36);
  const asked = harness.ask({ route: 'decisions', caller, questions: 3 });
  const job = await harness.decisionEngine.scoring(0);
  t.equal(left(harness, caller), 0);
  job.started();
  for (const question of [0, 1, 2]) job.answer(question, [0.5, 0.5]);
  job.done();
  t.equal(await asked.over, 200);
  t.equal(left(harness, caller), 0);
  t.equal(await harness.ask({ route: 'decisions', caller }).over, 'quota_exceeded');
});

t.test(
  'credit in parts: many replies begin, each may grow as far as the balance goes, and the bill is exact',
  async (t) => {
    const price = (completion: number): bigint => BigInt(PROMPT) * RATES.input + BigInt(completion) * RATES.output;
    const balance = 3n * price(PART_TOKENS) + BigInt(PART_TOKENS) * RATES.output;
    const whole = new BilledHarness(balance, { seats: 2 });
    void whole.ask({ maxTokens: 1014 });
    await whole.chatEngine.generation(0);
    t.equal(
      await whole.ask({ maxTokens: 1014 }).over,
      'insufficient_credit',
      'two that reserve the most that they can cost',
    );
    const harness = new BilledHarness(balance, { seats: 4, creditInParts: true });
    const asked = Array.from({ length: 3 }, () => harness.ask({ maxTokens: 1014 }));
    const jobs: FakeGeneration[] = [];
    for (const index of [0, 1, 2]) jobs.push(await harness.chatEngine.generation(index));
    t.equal(harness.balance, BigInt(PART_TOKENS) * RATES.output);
    t.equal(await harness.ask({ maxTokens: 1014 }).over, 'insufficient_credit');
    for (const job of jobs) job.started().piece(200).needsTokens(200);
    t.same(
      jobs.map(({ limits }) => limits),
      [
        [{ tokens: 2 * PART_TOKENS, last: false }],
        [{ tokens: PART_TOKENS, last: true }],
        [{ tokens: PART_TOKENS, last: true }],
      ],
    );
    t.equal(harness.balance, 0n);
    for (const job of jobs) job.finished(0, 'length').done();
    for (const each of asked) t.equal(await each.over, 200);
    t.equal(harness.balance, balance - 3n * price(200));
    t.equal(harness.ledger.outstanding, 0);
  },
);

type End = (harness: BilledHarness, asked: RunningRequest, job: FakeGeneration) => void;
const ENDS: Readonly<Record<string, readonly [end: End, tokens: number]>> = {
  'the caller leaves before the engine began': [(_, asked) => asked.leave(), 0],
  'the caller leaves': [
    (_, asked, job) => {
      job.started().piece(30).needsTokens(30);
      asked.leave();
    },
    PROMPT + 30,
  ],
  'the engine dies in a whole reply': [
    (harness, _, job) => {
      job.started().piece(200).needsTokens(200);
      harness.chatEngine.lose();
    },
    0,
  ],
  'the job fails': [(_, __, job) => job.started().piece(200).needsTokens(200).failed('failed'), 0],
  'the deadline passes': [
    (harness, _, job) => {
      job.started().piece(30);
      harness.clock.advance(5000);
    },
    PROMPT + 30,
  ],
};

for (const [name, [end, tokens]] of Object.entries(ENDS))
  t.test(`nothing stays reserved when ${name}`, async (t) => {
    const harness = new BilledHarness(GRANT, { creditInParts: true });
    const caller = { ...quota(2000), tokensPerMinute: 2000, accountTokens: { tokensPerMonth: 2000 } };
    const asked = harness.ask({ caller, maxTokens: 900, timeoutMs: 5000 });
    const job = await harness.chatEngine.generation(0);
    t.equal(left(harness, caller), 2000 - first);
    end(harness, asked, job);
    await asked.over;
    t.same(
      harness.quotas.left(caller).map(({ remaining }) => remaining),
      Array<number>(3).fill(2000 - tokens),
    );
    t.equal(harness.quotas.outstanding, 0);
    t.equal(harness.ledger.outstanding, 0);
  });
