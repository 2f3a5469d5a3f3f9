/** What becomes of batches: their windows, pauses, turns and rights, on a clock and an engine that the test drives. */
import { readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { PART_TOKENS } from '../../../sidecar/api/usage-session.js';
import { UNREADABLE, type BatchRecord } from '../../../sidecar/batch/batch-store.js';
import { AbortHandle } from '../../../sidecar/lib/abort.js';
import { BatchHarness, line } from '../../support/batch-harness.js';
import { ACME } from '../../support/in-process.js';

const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;

const lines = (count: number): string[] => Array.from({ length: count }, (_, i) => line(String(i)));

t.test('at the end of its window lines that did not run are in the file of errors, in few writes', async (t) => {
  const harness = await BatchHarness.start(t);
  harness.engine.script = {};
  const batch = await harness.submit(lines(500));
  await harness.engine.generation(1);
  harness.engine.generations[0]?.started().piece(5).finished().done();
  await harness.until(() => harness.runner.sumsOf(batch).completed === 1, 'an answer');
  harness.clock.advance(DAY_MS);
  const ended = await harness.has(batch, 'expired');
  t.match(ended, { lines: 500, sums: { completed: 1, failed: 499 }, files: { output: true, error: true } });
  const errors = await harness.answersOf(ended, ended.errorFile);
  t.equal(errors.length, 499);
  t.match(errors[7], { response: null, error: { code: 'batch_expired' } });
  t.equal(harness.closes.filter(({ price }) => price?.picodollars !== '0').length, 1, 'they cost nothing');
});

t.test('a window that ends while lines are checked leaves no answers, and no counts', async (t) => {
  const harness = await BatchHarness.start(t);
  let checked = 0;
  harness.onCheck = () => {
    checked += 1;
    if (checked === 3) harness.clock.advance(DAY_MS);
  };
  const batch = await harness.submit(lines(10));
  const ended = await harness.has(batch, 'expired');
  t.match(ended, { lines: 0, sums: { completed: 0, failed: 0 }, files: { output: false, error: false } });
});

/** A batch of 20 lines of which one has an answer, and the faults that its runner reports. */
async function withOneAnswer(t: Test) {
  const harness = await BatchHarness.start(t);
  const faults: unknown[] = [];
  harness.onFault = (fault) => void faults.push(fault);
  harness.engine.script = {};
  const batch = await harness.submit(lines(20));
  const job = await harness.engine.generation(0);
  job.started().piece(5).finished().done();
  await harness.until(() => harness.runner.sumsOf(batch).completed === 1, 'an answer');
  return { harness, batch, faults };
}

t.test('a batch whose input is missing ends, with the answers that it has, and says why', async (t) => {
  const { harness, batch, faults } = await withOneAnswer(t);
  await harness.files.remove(batch.inputFile);
  harness.clock.advance(DAY_MS);
  const ended = await harness.has(batch, 'failed');
  t.match(ended, { problems: [{ code: 'content_lost' }], sums: { completed: 1 }, files: { output: true } });
  t.equal((await harness.answersOf(ended, ended.outputFile)).length, 1);
  const file = await harness.files.create('acme');
  file.append(Buffer.from(line('0')));
  const { id } = await file.finish({ name: 'in', lifeS: 86_400 });
  const request = { inputFile: id, endpoint: '/v1/chat/completions', metadata: null } as const;
  const unread = await harness.store.create(ACME, request, { segment: 1, offset: 0 });
  // As by a deletion at the same time.
  await harness.files.remove(id);
  harness.runner.runAll();
  if (typeof unread === 'string') throw new Error(unread);
  t.match(await harness.has(unread, 'failed'), { problems: [{ code: 'content_lost' }], lines: 0 });
  t.equal(faults.length, 2);
});

t.test('a batch that has lost one of its two files of answers ends with the other one', async (t) => {
  const { harness, batch, faults } = await withOneAnswer(t);
  const content = (id: string): string => join(harness.contentDir, id);
  await harness.until(() => readFileSync(content(batch.outputFile))[0] === 1, 'the mark of what is billed', 500);
  // It stops, and is tried again from its files.
  const read = harness.files.read.bind(harness.files);
  harness.files.read = () => Promise.reject(new Error('EIO'));
  harness.clock.advance(DAY_MS);
  await harness.until(() => faults.length === 1, 'a fault');
  harness.files.read = read;
  await rm(content(batch.errorFile));
  await harness.until(() => harness.store.get(batch.id)?.status === 'failed', 'its end', 500);
  const ended = await harness.has(batch, 'failed');
  t.match(ended, {
    problems: [{ code: 'content_lost' }],
    sums: { completed: 1 },
    files: { output: true, error: false },
  });
  t.equal((await harness.answersOf(ended, ended.outputFile)).length, 1);
});

/** The next change to this status fails. */
function failChangeTo({ store }: BatchHarness, failing: BatchRecord['status']): void {
  const change = store.change.bind(store);
  store.change = (id, make) =>
    change(id, (record) => {
      const made = make(record);
      if (made.status !== failing) return made;
      store.change = change;
      throw new Error('EIO');
    });
}

/** How a batch of which one line is answered ends early. */
const STOPS: Readonly<Record<string, (harness: BatchHarness, batch: BatchRecord) => unknown>> = {
  cancelled: ({ runner }, batch) => runner.cancel(batch),
  denied: async (harness) => {
    harness.now = { ...ACME, routes: new Set(['chat'] as const) };
    (await harness.engine.generation(1)).started().piece(5).finished().done();
  },
  expired: ({ clock }) => clock.advance(DAY_MS),
};

t.test('a batch whose answers their owner deletes before its end is recorded has lost nothing', async (t) => {
  for (const [end, stop, answered, code] of [
    ['completed', undefined, 20],
    ['cancelled', STOPS['cancelled'], 1],
    ['cancelled', STOPS['denied'], 2, 'model_not_entitled'],
    ['expired', STOPS['expired'], 1],
  ] as const) {
    const harness = await BatchHarness.start(t);
    const faults: unknown[] = [];
    harness.onFault = (fault) => void faults.push(fault);
    failChangeTo(harness, end);
    if (stop) harness.engine.script = {};
    const batch = await harness.submit(lines(20));
    if (stop) {
      (await harness.engine.generation(0)).started().piece(5).finished().done();
      await harness.until(() => harness.runner.sumsOf(batch).completed === 1, 'an answer');
      await stop(harness, batch);
    }
    await harness.until(() => faults.length === 1, 'a fault');
    const sums = { completed: answered, failed: end === 'expired' ? 19 : 0, picodollars: String(15 * answered) };
    t.match(harness.store.get(batch.id), { status: end === 'cancelled' ? 'cancelling' : 'finalizing', sums });
    t.ok(harness.files.find(batch.account, batch.outputFile), 'callers see the file');
    for (const id of [batch.outputFile, batch.errorFile]) await harness.files.remove(id);
    await harness.until(() => harness.store.get(batch.id)?.files !== undefined, 'its end', 500);
    const ended = harness.store.get(batch.id);
    t.match(ended, { status: end, sums, files: { output: true, error: end === 'expired' } });
    t.same(
      ended?.problems.map((problem) => problem.code),
      code ? [code] : [],
    );
    t.match(faults, [{ message: 'EIO' }]);
  }
});

t.test('an error that could not be stored at once is stored as it was', async (t) => {
  const harness = await BatchHarness.start(t);
  const proceed = harness.files.continue.bind(harness.files);
  let failed = 0;
  harness.files.continue = async (id, found) => {
    const file = await proceed(id, found);
    const append = file.append.bind(file);
    file.append = () => {
      file.append = append;
      failed += 1;
      return Promise.reject(new Error('ENOSPC'));
    };
    return file;
  };
  harness.engine.script = {};
  const batch = await harness.submit(lines(20));
  await harness.engine.generation(0);
  harness.clock.advance(DAY_MS);
  await harness.until(() => harness.store.get(batch.id)?.status === 'expired', 'its end', 500);
  t.equal(failed, 1);
  const ended = harness.store.get(batch.id) as BatchRecord;
  t.same(
    (await harness.answersOf(ended, ended.errorFile)).map(({ custom_id: name }) => name),
    lines(20).map((_, at) => String(at)),
  );
});

t.test('a batch whose loss was recorded before the process ended runs no line', async (t) => {
  const harness = await BatchHarness.start(t);
  harness.onFault = () => undefined;
  harness.onCheck = async () => {
    harness.onCheck = () => undefined;
    await harness.store.change(batch.id, () => ({ problems: [UNREADABLE] }));
  };
  const batch = await harness.submit(lines(20));
  const ended = await harness.has(batch, 'failed');
  t.match(ended, { lines: 20, problems: [{ code: 'content_lost' }], sums: { completed: 0 } });
  t.equal(harness.tokenized, 0);
});

t.test('what read the lines of a batch forgets them after its end', async (t) => {
  const harness = await BatchHarness.start(t);
  harness.clock.advance(MINUTE_MS);
  t.equal(harness.forgotten, 0, 'there are none');
  const first = await harness.submit(lines(3));
  await harness.has(first, 'completed');
  await harness.until(() => harness.forgotten === 1, 'its lines are forgotten', 500);
  harness.clock.advance(MINUTE_MS);
  t.equal(harness.forgotten, 1, 'once');
  harness.mayForget = false;
  await harness.has(await harness.submit(lines(3)), 'completed');
  await harness.until(() => harness.forgotten === 3, 'a second try', 500);
  harness.mayForget = true;
  harness.clock.advance(MINUTE_MS);
  harness.clock.advance(MINUTE_MS);
  t.equal(harness.forgotten, 4, 'until it can be done');
  await harness.has(await harness.submit(lines(3)), 'completed');
  await harness.until(() => harness.forgotten === 5, 'another batch', 500);
  const at = harness.clock.now();
  await harness.has(await harness.submit(lines(3)), 'completed');
  await harness.until(() => harness.forgotten === 6, 'the next one', 500);
  t.ok(harness.clock.now() - at >= MINUTE_MS, 'a minute later');
});

t.test('lines are forgotten ten seconds after their end, also where batches end one after another', async (t) => {
  const harness = await BatchHarness.start(t);
  for (let i = 0; i < 6; i += 1) {
    await harness.has(await harness.submit(lines(1)), 'completed');
    harness.clock.advance(4000);
  }
  t.equal(harness.forgotten, 1, 'those of the first');
  await harness.until(() => harness.forgotten === 2, 'those that had just ended', 500);
  harness.clock.advance(2 * MINUTE_MS);
  t.equal(harness.forgotten, 2);
});

t.test('a batch keeps nothing of its lines that have ended', async (t) => {
  const listeners = new Set<() => void>();
  const methodOf = (name: keyof AbortHandle): ((this: AbortHandle, type: 'abort', fn: () => void) => void) =>
    Reflect.get(AbortHandle.prototype, name) as (type: 'abort', fn: () => void) => void;
  const [add, remove] = [methodOf('addEventListener'), methodOf('removeEventListener')];
  t.teardown(() => Object.assign(AbortHandle.prototype, { addEventListener: add, removeEventListener: remove }));
  AbortHandle.prototype.addEventListener = function (type, fn) {
    listeners.add(fn);
    add.call(this, type, fn);
  };
  AbortHandle.prototype.removeEventListener = function (type, fn) {
    listeners.delete(fn);
    remove.call(this, type, fn);
  };
  const harness = await BatchHarness.start(t);
  await harness.has(await harness.submit(lines(200)), 'completed');
  t.ok(listeners.size < 20, `${listeners.size} listeners of 200 lines`);
});

t.test('without credit one line is tried each time, no further one begins, and callers see why', async (t) => {
  const harness = await BatchHarness.start(t, { granted: 5n });
  const batch = await harness.submit(lines(50));
  await harness.until(() => harness.runner.pauseOf(batch.id) !== undefined, 'a pause');
  t.match(harness.runner.pauseOf(batch.id), { code: 'insufficient_credit', line: null });
  const first = harness.tokenized;
  const since = harness.clock.now();
  await harness.until(() => harness.tokenized >= first + 20, 'further tries', 500);
  // Of the lines that had begun some were tried after the first pause.
  t.ok(harness.clock.now() - since >= 150_000, `20 in ${harness.clock.now() - since} ms`);
  t.ok(first <= 5, `${first} lines were tried before`);
  t.equal(harness.engine.generations.length, 0);
  harness.ledger.grant(new Map([['acme', 10n ** 9n]]));
  await harness.until(() => harness.store.get(batch.id)?.status === 'completed', 'its end', 500);
  t.match(harness.store.get(batch.id), { sums: { completed: 50, failed: 0, picodollars: String(50 * 15) } });
});

t.test(
  'a quota that is used up pauses the batch until it has tokens; a line of more than is left waits alone, one of more than the whole is refused',
  async (t) => {
    const harness = await BatchHarness.start(t);
    const [large, huge] = [line('0', { prompt: 500 }), line('1', { prompt: 2000 })];
    const few = Array.from({ length: 5 }, (_, i) => line(String(i + 2), { prompt: 50, max: 10 }));
    const tokensPerDay = 700;
    const batch = await harness.submit([line('9', { prompt: 195, max: 5 }), large, huge, ...few], { tokensPerDay });
    const sums = (): { readonly completed: number; readonly failed: number } => harness.runner.sumsOf(batch);
    await harness.until(() => sums().completed === 6 && sums().failed === 1, 'six answers');
    t.equal(harness.runner.pauseOf(batch.id), undefined);
    harness.clock.advance(DAY_MS / 2);
    t.equal(sums().completed, 6);
    harness.clock.advance(DAY_MS / 2 - MINUTE_MS);
    t.equal(harness.store.get(batch.id)?.status, 'in_progress');
  },
);

t.test('the pause for a quota that is used up is over with it', async (t) => {
  const harness = await BatchHarness.start(t);
  const batch = await harness.submit(
    Array.from({ length: 6 }, (_, i) => line(String(i), { prompt: 45, max: 5 })),
    { tokensPerMinute: 100 },
  );
  await harness.until(() => harness.closes.length === 2, 'two answers');
  await harness.until(() => harness.runner.pauseOf(batch.id)?.code === 'quota_exceeded', 'a pause');
  await harness.until(() => harness.store.get(batch.id)?.status === 'completed', 'its end', 200);
  t.match(harness.store.get(batch.id), { sums: { completed: 6 } });
  t.ok(harness.clock.now() >= 2 * MINUTE_MS, `${harness.clock.now()} ms`);
});

t.test('a reply that was cut for lack of a quota’s tokens runs again, with more of them reserved', async (t) => {
  const harness = await BatchHarness.start(t);
  harness.engine.script = {};
  const caller = { ...ACME, tokensPerMinute: 1000 };
  const held = harness.quotas.reserve(caller, 600);
  const batch = await harness.submit([line('0', { max: 900 })], caller);
  const cut = await harness.engine.generation(0);
  t.equal(cut.job.limit, PART_TOKENS);
  cut.started().piece(200).needsTokens(200);
  const [{ tokens, last } = { tokens: 0, last: false }] = cut.limits;
  t.ok(last);
  cut
    .piece(tokens - 200)
    .finished(0, 'length')
    .done();
  await harness.until(() => harness.closes.length === 1, 'its record');
  t.match(harness.closes, [{ outcome: 'refused', price: { picodollars: '0' } }]);
  if (held.kind === 'reserved') held.reservation.settle(0);
  await harness.until(() => harness.engine.generations.length === 2, 'another try', 100);
  t.ok(harness.clock.now() >= 5000);
  const again = await harness.engine.generation(1);
  t.equal(again.job.limit, 2 * tokens);
  again.started().piece(400).finished().done();
  t.match(await harness.has(batch, 'completed'), { sums: { completed: 1, used: { completionTokens: 400 } } });
});

t.test('a key that may run no batches any more ends its batch', async (t) => {
  const harness = await BatchHarness.start(t);
  harness.engine.script = {};
  const batch = await harness.submit(lines(20));
  const job = await harness.engine.generation(0);
  harness.now = { ...ACME, routes: new Set(['chat'] as const) };
  job.started().piece(5).finished().done();
  const ended = await harness.has(batch, 'cancelled');
  t.match(ended, { problems: [{ code: 'model_not_entitled' }], sums: { completed: 1 } });
});

t.test('a line that asks for a tier has the class and the price of its batch', async (t) => {
  const harness = await BatchHarness.start(t);
  harness.now = { ...ACME, tiers: new Set(['priority'] as const) };
  const batch = await harness.submit([line('0', { tier: 'priority' })]);
  const ended = await harness.has(batch, 'completed');
  t.match(harness.closes, [{ batch: true, price: { version: 'p/batch', picodollars: '15' } }]);
  t.notOk(harness.closes.some((close) => 'tier' in close));
  t.match(await harness.answersOf(ended, ended.outputFile), [{ response: { body: { service_tier: 'default' } } }]);
});

t.test('a full store lets no line run, and callers see why', async (t) => {
  const harness = await BatchHarness.start(t, { maxBytes: 2500 });
  const batch = await harness.submit(lines(10));
  await harness.until(() => harness.runner.pauseOf(batch.id) !== undefined, 'a pause');
  t.match(harness.runner.pauseOf(batch.id), { code: 'capacity_exceeded' });
  const before = harness.engine.generations.length;
  const until = harness.clock.now() + MINUTE_MS;
  await harness.until(() => harness.clock.now() >= until, 'a minute', 500);
  t.equal(harness.engine.generations.length, before);
  t.ok(before < 10, `${before} ran before`);
});

t.test('batches take turns, and each account has one before another has two', async (t) => {
  const harness = await BatchHarness.start(t, { granted: 0n });
  const paused: BatchRecord[] = [];
  const submit = async (account: number, each: readonly string[]): Promise<BatchRecord> => {
    const batch = await harness.submit(each, { account: `a${account}`, keyId: `k${account}` });
    paused.push(batch);
    return batch;
  };
  // It has the credit of one line, and is the first to leave.
  harness.ledger.grant(new Map([['a0', 110n]]));
  const half = await submit(0, lines(2));
  await harness.until(() => harness.runner.sumsOf(half).completed === 1, 'an answer');
  for (let account = 0; account < 8; account += 1)
    for (const each of account === 0 ? [1] : [1, 2]) await submit(account, [line(`${each}`)]);
  await harness.until(() => paused.every(({ id }) => harness.runner.pauseOf(id) !== undefined), 'all wait for credit');
  harness.ledger.grant(new Map([['late', 10n ** 9n]]));
  const late = await harness.submit([line('0')], { account: 'late' });
  t.equal(late.status, 'validating');
  await harness.until(() => harness.store.get(late.id)?.status === 'completed', 'its end', 5000);
  t.ok(harness.clock.now() >= 10 * MINUTE_MS, `after ${harness.clock.now()} ms`);
  t.ok(paused.every(({ id }) => harness.store.get(id)?.status === 'in_progress'));
  t.match(harness.store.get(half.id), { sums: { completed: 1, picodollars: '15' } }, 'of one that left, too');
});

t.test('the window of a batch that waits for its turn ends, too', async (t) => {
  const harness = await BatchHarness.start(t, { granted: 0n });
  const batches = [];
  for (let each = 0; each < 3; each += 1) batches.push(await harness.submit(lines(2)));
  harness.onCheck = () => new Promise(() => undefined);
  harness.clock.advance(DAY_MS);
  for (const batch of batches) t.match(await harness.has(batch, 'expired'), { status: 'expired' });
});
