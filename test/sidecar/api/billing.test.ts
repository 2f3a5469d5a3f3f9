/** The price of each end of a request, and that no reservation is left. docs/accounts.md has the same as a table. */
import fc from 'fast-check';
import t from 'tap';
import type { QueueRequest } from '../../../sidecar/admission/types.js';
import { PROGRESS_MS, PROGRESS_TOKENS } from '../../../sidecar/api/usage-session.js';
import { CLASS_WEIGHTS } from '../../../sidecar/domain/service-class.js';
import type { FakeScoring } from '../../support/fake-engine.js';
import { FakeGeneration } from '../../support/fake-engine.js';
import { ACME } from '../../support/in-process.js';
import { BilledHarness, DECISION, RATES, type RunningRequest } from '../../support/billed-harness.js';

const GRANT = 10n ** 12n;
/** The highest price of a chat request as `ask` makes it: 10 prompt tokens and 100 for the completion. */
const WORST = 10n * RATES.input + 100n * RATES.output;
/** 10 prompt tokens, 4 of them reused, and 3 tokens generated. */
const SERVED = 6n * RATES.input + 4n * RATES.cachedInput + 3n * RATES.output;

/** Lets all settled promises continue. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

t.test('a request reserves its highest price while it runs, and pays its actual one', async (t) => {
  const harness = new BilledHarness(GRANT);
  const asked = harness.ask();
  const job = await harness.chatEngine.generation(0);
  t.equal(harness.balance, GRANT - WORST);
  t.equal(harness.ledger.outstanding, 1);
  job.started(4).pieces('a', 'b', 'c').finished().done();
  t.equal(await asked.over, 200);
  t.equal(harness.balance, GRANT - SERVED);
  t.equal(harness.ledger.outstanding, 0);
  t.match(harness.closes, [
    {
      outcome: 'done',
      promptTokens: 10,
      cachedTokens: 4,
      completionTokens: 3,
      price: { version: 'test.1', picodollars: String(SERVED) },
      prepaid: true,
    },
  ]);
  t.equal(harness.clock.pending, 0);
});

t.test('no more of a prompt counts as cached than it has', async (t) => {
  const harness = new BilledHarness(GRANT);
  const asked = harness.ask();
  (await harness.chatEngine.generation(0)).started(25).pieces('a').finished().done();
  t.equal(await asked.over, 200);
  t.equal(harness.balance, GRANT - (10n * RATES.cachedInput + RATES.output));
  t.match(harness.closes, [{ promptTokens: 10, cachedTokens: 10 }]);
});

t.test('a keep-alive that is due while the close is written opens no stream', async (t) => {
  const harness = new BilledHarness(GRANT);
  const asked = harness.ask({ stream: true });
  (await harness.chatEngine.generation(0)).started(4);
  let written = (): void => undefined;
  harness.spool.sync = () => new Promise((resolve) => (written = () => resolve(true)));
  asked.leave();
  await settled();
  harness.clock.advance(3_600_000);
  written();
  await asked.over;
  t.match((await harness.metrics.render()).text, /^ra_sidecar_streams_running 0$/m);
});

t.test('priority has a weight of its own, and its account the share of its key', async (t) => {
  const harness = new BilledHarness(GRANT);
  const queue = harness.queue('chat');
  const enter = queue.enter.bind(queue);
  const entered: QueueRequest[] = [];
  queue.enter = (request) => {
    entered.push(request);
    return enter(request);
  };
  const asked = harness.ask({ caller: { ...ACME, tiers: new Set(['priority'] as const) }, tier: 'priority' });
  (await harness.chatEngine.generation(0)).started().pieces('a').finished().done();
  t.equal(await asked.over, 200);
  t.match(entered, [{ weight: CLASS_WEIGHTS.interactive, ownWeight: CLASS_WEIGHTS.standard }]);
});

t.test('n choices reserve n completions and bill the prompt once', async (t) => {
  const harness = new BilledHarness(GRANT);
  const asked = harness.ask({ n: 4 });
  const job = await harness.chatEngine.generation(0);
  t.equal(harness.balance, GRANT - (10n * RATES.input + 400n * RATES.output));
  job.started(0).pieces('a', 'b').finished(0);
  for (const choice of [1, 2, 3]) job.finished(choice);
  job.done();
  t.equal(await asked.over, 200);
  t.equal(harness.balance, GRANT - (10n * RATES.input + 2n * RATES.output));
});

t.test('a decision bills its input once per question, however much was reused', async (t) => {
  const harness = new BilledHarness(GRANT);
  const asked = harness.ask({ route: 'decisions', questions: 3 });
  const job = await harness.decisionEngine.scoring(0);
  const price = 3n * 12n * DECISION;
  t.equal(harness.balance, GRANT - price, 'its highest price is its price');
  job.started(10);
  for (const question of [0, 1, 2]) job.answer(question, [0.5, 0.5]);
  job.done();
  t.equal(await asked.over, 200);
  t.equal(harness.balance, GRANT - price);
  t.match(harness.closes, [{ promptTokens: 36, cachedTokens: 10, price: { picodollars: String(price) } }]);
});

/** How a running request ends, and its price. `job`: it waits in the engine until the test continues it. */
const ENDS: readonly {
  readonly name: string;
  readonly stream?: boolean;
  readonly end: (harness: BilledHarness, asked: RunningRequest) => Promise<void> | void;
  readonly answer: number | string | undefined;
  readonly outcome: string;
  readonly cost: bigint;
}[] = [
  {
    name: 'the caller disconnects before the engine began',
    end: (_, asked) => asked.leave(),
    answer: undefined,
    outcome: 'cancelled',
    cost: 0n,
  },
  {
    name: 'the caller disconnects during the prefill',
    end: (harness, asked) => {
      harness.chatEngine.generations[0]?.started(4);
      asked.leave();
    },
    answer: undefined,
    outcome: 'cancelled',
    cost: 6n * RATES.input + 4n * RATES.cachedInput,
  },
  ...[false, true].map((stream) => ({
    name: `the caller disconnects from ${stream ? 'a stream' : 'a whole reply'} after three tokens`,
    stream,
    end: (harness: BilledHarness, asked: RunningRequest) => {
      harness.chatEngine.generations[0]?.started(4).pieces('a', 'b', 'c');
      asked.leave();
    },
    answer: stream ? 200 : undefined,
    outcome: 'cancelled',
    cost: SERVED,
  })),
  {
    name: 'the deadline passes before the engine began',
    end: (harness) => harness.clock.advance(1000),
    answer: 'timeout',
    outcome: 'timeout',
    cost: 0n,
  },
  {
    name: 'the deadline passes after three tokens',
    end: (harness) => {
      harness.chatEngine.generations[0]?.started(4).pieces('a', 'b', 'c');
      harness.clock.advance(1000);
    },
    answer: 'timeout',
    outcome: 'timeout',
    cost: SERVED,
  },
  ...(['failed', 'protocol', 'lost'] as const).flatMap((fault) => [
    {
      name: `the engine fails (${fault}) a whole reply after three tokens`,
      end: (harness: BilledHarness) =>
        harness.chatEngine.generations[0]?.started(4).pieces('a', 'b', 'c').failed(fault),
      answer: fault === 'protocol' ? 'upstream_contract_violation' : 'bad_gateway',
      outcome: 'failed',
      cost: 0n,
    },
    {
      name: `the engine fails (${fault}) a stream before its first token`,
      stream: true,
      end: (harness: BilledHarness) => harness.chatEngine.generations[0]?.started(4).failed(fault),
      answer: fault === 'protocol' ? 'upstream_contract_violation' : 'bad_gateway',
      outcome: 'failed',
      cost: 0n,
    },
    {
      name: `the engine fails (${fault}) a stream after three tokens`,
      stream: true,
      end: (harness: BilledHarness) =>
        harness.chatEngine.generations[0]?.started(4).pieces('a', 'b', 'c').failed(fault),
      answer: 200,
      outcome: 'failed',
      cost: SERVED,
    },
  ]),
  {
    name: 'a drain cuts a stream after three tokens',
    stream: true,
    end: (harness) => {
      harness.draining = true;
      harness.chatEngine.generations[0]?.started(4).pieces('a', 'b', 'c');
      harness.chatEngine.lose();
    },
    answer: 200,
    outcome: 'failed',
    cost: SERVED,
  },
  ...(
    [
      ['the caller leaves', (_: BilledHarness, asked: RunningRequest) => asked.leave(), undefined, 'cancelled'],
      ['the deadline passes', (harness: BilledHarness) => harness.clock.advance(1000), 'timeout', 'timeout'],
      ['the sidecar drains', (harness: BilledHarness) => harness.queue('chat').drain(), 'draining', 'refused'],
    ] as const
  ).map(([name, end, answer, outcome]) => ({
    name: `${name} while the request waits for another engine after the first was lost`,
    end: (harness: BilledHarness, asked: RunningRequest) => {
      harness.queue('chat').pause();
      harness.chatEngine.lose();
      return settled().then(() => end(harness, asked));
    },
    answer,
    outcome,
    cost: 0n,
  })),
  {
    name: 'the engine is lost twice before it began',
    end: async (harness) => {
      for (const index of [0, 1]) {
        await harness.chatEngine.generation(index);
        harness.chatEngine.lose();
        harness.chatEngine.revive();
      }
    },
    answer: 'bad_gateway',
    outcome: 'refused',
    cost: 0n,
  },
];

t.test('each end has its price, and releases the rest', async (t) => {
  for (const { name, stream = false, end, answer, outcome, cost } of ENDS)
    await t.test(name, async (t) => {
      const harness = new BilledHarness(GRANT);
      const asked = harness.ask({ stream, timeoutMs: 1000 });
      await harness.chatEngine.generation(0);
      await end(harness, asked);
      t.equal(await asked.over, answer);
      t.equal(harness.closes.length, 1, 'one closing line');
      t.match(harness.closes[0], { outcome, price: { version: 'test.1', picodollars: String(cost) } });
      t.equal(harness.balance, GRANT - cost);
      t.equal(harness.ledger.outstanding, 0);
      t.equal(harness.clock.pending, 0, 'no timer is left');
      t.match(harness.queue('chat').snapshot(), { busy: 0, waiting: 0 });
    });
});

t.test('tokens are counted once an engine began the prompt', async (t) => {
  const harness = new BilledHarness(GRANT);
  const tokens = async (): Promise<number> => {
    const { text } = await harness.metrics.render();
    return Number(/^gen_ai_client_token_usage_sum\{.*"chat",gen_ai_token_type="input"\} (\S+)$/m.exec(text)?.[1] ?? 0);
  };
  for (const [index, counted] of [0, 10].entries()) {
    const asked = harness.ask();
    const job = await harness.chatEngine.generation(index);
    if (index === 1) job.started(4);
    asked.leave();
    await asked.over;
    t.equal(await tokens(), counted);
  }
});

t.test('a decision that fails costs nothing, one whose caller disconnects its prompt', async (t) => {
  const harness = new BilledHarness(GRANT);
  const failing = harness.ask({ route: 'decisions', questions: 3 });
  (await harness.decisionEngine.scoring(0)).started(0).answer(0, [0.5, 0.5]).failed('failed');
  t.equal(await failing.over, 'bad_gateway');
  t.equal(harness.balance, GRANT);
  const left = harness.ask({ route: 'decisions', questions: 3 });
  (await harness.decisionEngine.scoring(1)).started(0);
  left.leave();
  await left.over;
  t.equal(harness.balance, GRANT - 3n * 12n * DECISION);
});

t.test('a caller that cannot pay the highest price is refused, and pays nothing', async (t) => {
  const harness = new BilledHarness(WORST - 1n);
  t.equal(await harness.ask().over, 'insufficient_credit');
  t.equal(await harness.ask({ maxTokens: 5000 }).over, 'bad_request', 'token bounds come before');
  t.equal(harness.balance, WORST - 1n);
  t.strictSame(harness.spool.records, []);
  t.match(harness.queue('chat').snapshot(), { busy: 0, waiting: 0 });
  t.equal(harness.chatEngine.generations.length, 0);
  t.match((await harness.metrics.render()).text, /ra_sidecar_credit_refusals_total\{reason="insufficient"\} 1\n/);
  harness.ledger.grant(new Map([['acme', WORST]]));
  const asked = harness.ask();
  (await harness.chatEngine.generation(0)).started().finished().done();
  t.equal(await asked.over, 200, 'to the last picodollar');
});

t.test('under the compatible contract a reply of more than fits is cut to it, and reserves that', async (t) => {
  const harness = new BilledHarness(GRANT, { contract: 'compatible' });
  const asked = harness.ask({ maxTokens: 5000, n: 2 });
  const generation = await harness.chatEngine.generation(0);
  const { maxTokens } = generation.job;
  t.ok(maxTokens > 100 && maxTokens < 5000, `${maxTokens} tokens`);
  t.equal(harness.balance, GRANT - (10n * RATES.input + 2n * BigInt(maxTokens) * RATES.output));
  generation.started().finished().done();
  t.equal(await asked.over, 200);
  t.equal(
    await harness.ask({ prompt: 5000, maxTokens: 5000 }).over,
    'context_length_exceeded',
    'a prompt that is too long',
  );
  t.equal(harness.ledger.outstanding, 0);
});

t.test('while balances are not known, priced requests are refused', async (t) => {
  const harness = new BilledHarness(GRANT, { open: false });
  t.equal(await harness.ask().over, 'credit_gate_unavailable');
  t.match((await harness.metrics.render()).text, /ra_sidecar_credit_refusals_total\{reason="unavailable"\} 1\n/);
  const vouched = harness.ask({ caller: { ...ACME, vouched: true } });
  (await harness.chatEngine.generation(0)).started().finished().done();
  t.equal(await vouched.over, 200);
});

t.test('usage of a gateway’s caller is priced, and its credit is the gateway’s', async (t) => {
  const harness = new BilledHarness(0n);
  const asked = harness.ask({ caller: { ...ACME, vouched: true } });
  const job = await harness.chatEngine.generation(0);
  t.equal(harness.ledger.outstanding, 0);
  job.started(4).pieces('a', 'b', 'c').finished().done();
  t.equal(await asked.over, 200);
  t.match(harness.closes, [{ price: { picodollars: String(SERVED) } }]);
  t.notOk(harness.closes[0]?.prepaid);
  t.equal(harness.balance, 0n);
});

t.test('a request that waits for a seat reserves credit, until it is seated or leaves the queue', async (t) => {
  const harness = new BilledHarness(GRANT);
  const running = harness.ask();
  const job = await harness.chatEngine.generation(0);
  const leaver = harness.ask();
  const late = harness.ask({ timeoutMs: 1000 });
  const waited = harness.ask();
  await settled();
  t.equal(harness.ledger.outstanding, 4);
  leaver.leave();
  await leaver.over;
  t.equal(harness.ledger.outstanding, 3);
  harness.clock.advance(1000);
  t.equal(await late.over, 'timeout');
  t.equal(harness.ledger.outstanding, 2);
  harness.clock.advance(9000);
  t.equal(await waited.over, 'capacity_exceeded');
  t.equal(harness.ledger.outstanding, 1);
  job.started().finished().done();
  await running.over;
  t.equal(harness.balance, GRANT - 10n * RATES.input);
  t.equal(harness.closes.length, 1, 'a request that never ran has no record');
});

t.test('nothing starts on a spool that became unhealthy meanwhile, and running requests continue', async (t) => {
  const harness = new BilledHarness(GRANT);
  const running = harness.ask();
  const job = await harness.chatEngine.generation(0);
  const scoring = harness.ask({ route: 'decisions' });
  const score = await harness.decisionEngine.scoring(0);
  const waiting = [harness.ask(), harness.ask({ route: 'decisions' })];
  let tokenized = (): void => undefined;
  const early = harness.ask({ tokenizing: new Promise((resolve) => (tokenized = resolve)) });
  await settled();
  harness.spool.health = { ok: false, why: 'write' };
  tokenized();
  t.equal(await early.over, 'spool_unhealthy', 'before it waits for a seat');
  job.started(4).pieces('a', 'b', 'c').finished().done();
  score.started(0).answer(0, [0.5, 0.5]).done();
  t.equal(await running.over, 200);
  t.equal(await scoring.over, 200);
  for (const { over } of waiting) t.equal(await over, 'spool_unhealthy', 'with its seat');
  t.equal(
    harness.spool.records.filter(({ kind }) => kind === 'open').length,
    2,
    'no record of requests that never ran',
  );
  t.equal(harness.closes.length, 2);
  t.equal(harness.ledger.outstanding, 0);
  t.equal(harness.chatEngine.generations.length, 1);
  t.equal(harness.decisionEngine.scorings.length, 1);
  for (const id of ['chat', 'decide'] as const) t.match(harness.queue(id).snapshot(), { busy: 0, waiting: 0 });
  t.equal(harness.clock.pending, 0);
});

t.test('a place that is lost while its prompt is tokenized reserves nothing', async (t) => {
  for (const [name, lose, answer, cancels] of [
    ['its deadline', (harness: BilledHarness) => harness.clock.advance(1000), 'timeout', 0],
    ['its caller', (_: BilledHarness, asked: RunningRequest) => asked.leave(), undefined, 1],
    ['a drain', (harness: BilledHarness) => harness.queue('chat').drain(), 'draining', 0],
  ] as const) {
    const harness = new BilledHarness(GRANT);
    let tokenized = (): void => undefined;
    const asked = harness.ask({ timeoutMs: 1000, tokenizing: new Promise((resolve) => (tokenized = resolve)) });
    await settled();
    t.match(harness.queue('chat').snapshot(), { waiting: 1, busy: 0 }, name);
    lose(harness, asked);
    t.match(harness.queue('chat').snapshot(), { waiting: 0, busy: 0 }, `${name}: before there are tokens`);
    tokenized();
    t.equal(await asked.over, answer, name);
    t.equal(harness.ledger.outstanding, 0, name);
    t.equal(harness.balance, GRANT, name);
    t.equal(harness.chatEngine.generations.length, 0, name);
    t.equal(harness.clock.pending, 0, name);
    const left = /^ra_sidecar_cancels_total\{model="chat",phase="waiting"\} (\d+)$/m;
    t.equal(Number(left.exec((await harness.metrics.render()).text)?.[1] ?? 0), cancels, name);
  }
});

t.test('a request waits for an engine that is lost while its prompt is tokenized', async (t) => {
  const harness = new BilledHarness(GRANT);
  let tokenized = (): void => undefined;
  const asked = harness.ask({ tokenizing: new Promise((resolve) => (tokenized = resolve)) });
  await settled();
  harness.queue('chat').pause();
  harness.chatEngine.lose();
  tokenized();
  await settled();
  t.match(harness.queue('chat').snapshot(), { waiting: 1, busy: 0 });
  t.equal(harness.chatEngine.generations.length, 0);
  harness.chatEngine.revive();
  harness.queue('chat').resume(1);
  (await harness.chatEngine.generation(0)).started(4).pieces('a', 'b', 'c').finished().done();
  t.equal(await asked.over, 200);
  t.equal(harness.balance, GRANT - SERVED);
  t.equal(harness.closes.length, 1);
});

t.test('a request keeps the prices of its opening record', async (t) => {
  const harness = new BilledHarness(GRANT);
  harness.clock.advance(9_999);
  const asked = harness.ask();
  const job = (await harness.chatEngine.generation(0)).started(4);
  harness.clock.advance(2 * PROGRESS_MS);
  job.pieces('a', 'b', 'c').finished().done();
  await asked.over;
  const second = harness.ask();
  (await harness.chatEngine.generation(1)).started(4).pieces('a').finished().done();
  await second.over;
  t.match(harness.closes, [
    { price: { version: 'test.1', picodollars: String(SERVED) } },
    { price: { version: 'test.2', picodollars: '11' } },
  ]);
});

t.test('a progress record is due every 256 tokens or 5 s, whichever comes first', async (t) => {
  const harness = new BilledHarness(GRANT);
  const asked = harness.ask({ stream: true, maxTokens: 900 });
  const job = await harness.chatEngine.generation(0);
  const lines = (): (readonly [string, number, number, string | undefined])[] =>
    harness.spool.records.map(({ kind, promptTokens, completionTokens, price }) => [
      kind,
      promptTokens,
      completionTokens,
      price?.picodollars,
    ]);
  const expected: ReturnType<typeof lines> = [['open', 0, 0, '0']];
  const is = (what: string, ...more: typeof expected): void => {
    expected.push(...more);
    t.strictSame(lines(), expected, what);
  };
  const cost = (tokens: number): string => String(10n * RATES.input + BigInt(tokens) * RATES.output);
  is('before it is dispatched');
  harness.clock.advance(PROGRESS_MS);
  is('nothing to tell');
  job.started();
  harness.clock.advance(PROGRESS_MS);
  is('a prompt is free as long as it had no result', ['progress', 10, 0, '0']);
  harness.clock.advance(PROGRESS_MS);
  is('nothing new');
  job.pieces(...Array.from({ length: PROGRESS_TOKENS - 1 }, () => 'x'));
  is('a token short');
  job.pieces('x');
  is('256 tokens', ['progress', 10, 256, cost(256)]);
  harness.clock.advance(PROGRESS_MS - 1);
  job.pieces('x');
  is('each record restarts both');
  harness.clock.advance(1);
  is('5 s', ['progress', 10, 257, cost(257)]);
  job.pieces(...Array.from({ length: 2 * PROGRESS_TOKENS }, () => 'x'));
  is('counted from the last record', ['progress', 10, 513, cost(513)], ['progress', 10, 769, cost(769)]);
  job.finished().done();
  t.equal(await asked.over, 200);
  is('the end', ['close', 10, 769, cost(769)]);
  harness.clock.advance(10 * PROGRESS_MS);
  is('nothing after it');
  t.equal(new Set(harness.spool.records.map(({ id }) => id)).size, 1);
});

t.test('progress of a whole reply has its tokens, and bills nothing', async (t) => {
  const harness = new BilledHarness(GRANT);
  const asked = harness.ask();
  (await harness.chatEngine.generation(0)).started().pieces('a', 'b');
  harness.clock.advance(PROGRESS_MS);
  t.match(harness.spool.records[1], {
    kind: 'progress',
    completionTokens: 2,
    price: { picodollars: '0' },
    prepaid: true,
  });
  asked.leave();
  await asked.over;
});

t.test('a fault of the handler leaves no seat, credit, timer or open record', async (t) => {
  for (const kind of ['open', 'close'] as const) {
    const harness = new BilledHarness(GRANT);
    const asked = harness.ask();
    const failing = t.rejects(asked.over, { message: 'no disk' }, kind);
    harness.spool.failOn = kind;
    if (kind === 'close') (await harness.chatEngine.generation(0)).started().pieces('a').finished().done();
    await failing;
    t.equal(harness.ledger.outstanding, 0);
    t.equal(harness.clock.pending, 0);
    t.match(harness.queue('chat').snapshot(), { busy: 0, waiting: 0 });
  }
});

const EVENT = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      act: fc.constant('ask' as const),
      route: fc.constantFrom('chat' as const, 'decisions' as const),
      stream: fc.boolean(),
      n: fc.integer({ min: 1, max: 3 }),
      maxTokens: fc.integer({ min: 1, max: 900 }),
      prompt: fc.integer({ min: 4, max: 100 }),
      questions: fc.integer({ min: 1, max: 5 }),
      vouched: fc.boolean(),
      timeoutMs: fc.constantFrom(0, 3000),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      act: fc.constantFrom('start' as const, 'say' as const, 'end' as const, 'fail' as const),
      job: fc.nat(),
    }),
  },
  { weight: 2, arbitrary: fc.record({ act: fc.constant('leave' as const), asked: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ act: fc.constant('wait' as const), ms: fc.integer({ min: 1, max: 4000 }) }) },
  { weight: 1, arbitrary: fc.constant({ act: 'lose' as const }) },
);

t.test(
  'whatever happens to requests: balances equal the sum of the records, and nothing is overspent or kept',
  async (t) => {
    const seen = new Set<string>();
    await fc.assert(
      fc.asyncProperty(fc.array(EVENT, { minLength: 10, maxLength: 60 }), async (events) => {
        // Some three chat requests’ worth, so that credit runs out.
        const granted = 1_500_000_000n;
        const harness = new BilledHarness(granted, { seats: 3 });
        const all: RunningRequest[] = [];
        for (const event of events) {
          const jobs = [...harness.chatEngine.generations, ...harness.decisionEngine.scorings].filter(
            ({ live }) => live,
          );
          if (event.act === 'ask') {
            const { vouched, ...asking } = event;
            all.push(harness.ask({ ...asking, ...(vouched && { caller: { ...ACME, vouched: true } }) }));
          } else if (event.act === 'leave') all[event.asked % Math.max(1, all.length)]?.leave();
          else if (event.act === 'wait') harness.clock.advance(event.ms);
          else if (event.act === 'lose') {
            harness.chatEngine.lose();
            harness.chatEngine.revive();
          } else play(event.act, jobs[event.job % Math.max(1, jobs.length)]);
          await settled();
          const { settled: spent, reserved } = harness.ledger.balance('acme');
          if (spent !== billed(harness) || spent + reserved > granted) return false;
        }
        for (const asked of all) asked.leave();
        for (const outcome of await Promise.all(all.map(({ over }) => over))) seen.add(String(outcome));
        for (const { outcome } of harness.closes) seen.add(String(outcome));
        const { settled: spent, reserved } = harness.ledger.balance('acme');
        const opens = harness.spool.records.filter(({ kind }) => kind === 'open');
        return (
          spent === billed(harness) &&
          reserved === 0n &&
          harness.ledger.outstanding === 0 &&
          harness.clock.pending === 0 &&
          opens.length === harness.closes.length &&
          new Set(harness.closes.map(({ id }) => id)).size === opens.length
        );
      }),
      { numRuns: 150 },
    );
    for (const end of ['200', 'insufficient_credit', 'timeout', 'bad_gateway', 'done', 'cancelled', 'failed'])
      t.ok(seen.has(end), `${end} happened`);
  },
);

/** The sum of the closing records of acme’s own requests. */
function billed({ closes }: BilledHarness): bigint {
  return closes.filter(({ prepaid }) => prepaid).reduce((sum, { price }) => sum + BigInt(price?.picodollars ?? 0), 0n);
}

/** Continues a job by one step, as its engine might. */
function play(act: 'start' | 'say' | 'end' | 'fail', job: FakeGeneration | FakeScoring | undefined): void {
  if (!job) return;
  if (act === 'fail') job.failed('failed');
  else if (!job.begun) job.started(2);
  else if (job instanceof FakeGeneration) {
    const left = job.job.maxTokens - job.said;
    if (act === 'say') job.pieces(...Array.from({ length: Math.min(left, 300) }, () => 'x'));
    else {
      for (let choice = 0; choice < job.job.n; choice += 1) job.finished(choice);
      job.done();
    }
  } else if (act === 'end') {
    job.job.questions.forEach((_, question) => job.answer(question, [0.5, 0.5]));
    job.done();
  }
}
