/**
 * Lists of inputs while the sidecar is killed, its spool is full, one of its engines is killed, and callers leave. Engines are stubs: an
 * input's first token selects what they do.
 */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { counted } from '../support/counted.js';
import { makeKey } from '../support/keys.js';
import { embeddedTestModel } from '../support/models.js';
import { Sidecar } from '../support/sidecar.js';
import { STUB_JOB } from '../support/stub-script.js';
import { readAll } from '../support/usage-records.js';
import type { UsageRecord } from '../../sidecar/domain/usage-record.js';

const EMBED = 'embed';
const { key, stored } = makeKey();
const inputs = (count: number): number[][] => Array.from({ length: count }, () => [7, 8, 8, 8]);
/** The first part of a list, and an input in the second one that is never done. */
const HELD = [...inputs(1024), [STUB_JOB.hold]];

async function start(t: Test, dir: string, replicas = 1): Promise<Sidecar> {
  writeFileSync(join(dir, 'keys.json'), JSON.stringify({ version: 1, keys: [stored] }));
  const price = {
    version: 'p1',
    effective: '2026-01-01T00:00:00Z',
    decisions: '1',
    chat: {},
    inputs: { [EMBED]: '1' },
  };
  writeFileSync(join(dir, 'prices.json'), JSON.stringify({ version: 1, prices: [price] }));
  const file = await embeddedTestModel();
  const sidecar = await Sidecar.start(t, {
    stub: true,
    config: {
      dataDir: dir,
      keys: { file: join(dir, 'keys.json') },
      pricing: { file: join(dir, 'prices.json') },
      models: [{ id: EMBED, kind: 'embedding', file, seats: 2, contextPerSeat: 64, replicas }],
      queue: PATIENT_QUEUE,
      usage: { minFreeBytes: 0, closeWaitMs: 1000 },
      engine: { backoffMinMs: 10, backoffMaxMs: 100 },
    },
  });
  sidecar.key = key;
  return sidecar;
}

const embed = (sidecar: Sidecar, input: readonly (readonly number[])[], signal?: AbortSignal): Promise<Response> =>
  sidecar.post('/embeddings', { model: EMBED, input }, signal ? { signal } : {});

/** The closing records of the spool, which must have one for each opening one. */
async function closesOf(t: Test, dir: string): Promise<readonly UsageRecord[]> {
  const { records, damage } = await readAll(join(dir, 'usage'));
  t.same(damage, []);
  const ids = (kind: UsageRecord['kind']): string[] =>
    records
      .filter((record) => record.kind === kind)
      .map(({ id }) => id)
      .sort();
  t.same(ids('close'), ids('open'), 'each request is closed, and once');
  return records.filter(({ kind }) => kind === 'close');
}

t.test('a sidecar that is killed within a list bills what was answered, once', async (t) => {
  const dir = t.testdir();
  const killed = await start(t, dir);
  const held = embed(killed, HELD).catch(() => 'cut off');
  await counted(killed, 'seats_busy', 1, { model: EMBED });
  // Once this one's record is durable, that of the list is too.
  t.equal((await embed(killed, inputs(2000))).status, 200);
  killed.child.kill('SIGKILL');
  await killed.exited();
  t.equal(await held, 'cut off');
  const next = await start(t, dir);
  t.equal((await embed(next, inputs(10))).status, 200);
  next.child.kill('SIGTERM');
  await next.exited();
  const closes = await closesOf(t, dir);
  t.same(
    closes
      .filter(({ outcome }) => outcome === 'done')
      .map(({ promptTokens, price }) => [promptTokens, price?.picodollars]),
    [
      [8000, '8000000000'],
      [40, '40000000'],
    ],
  );
  const [lost, ...others] = closes.filter(({ outcome }) => outcome !== 'done');
  t.match(lost, { estimated: true, price: { picodollars: '0' } }, 'nothing of it was answered');
  t.equal(others.length, 0);
});

t.test('while the spool is full nothing begins, what runs ends, and nothing is lost', async (t) => {
  const dir = t.testdir();
  const sidecar = await start(t, dir);
  const leaving = new AbortController();
  const held = embed(sidecar, HELD, leaving.signal).catch(() => 'left');
  await counted(sidecar, 'seats_busy', 1, { model: EMBED });
  const limit = (bytes: string): void =>
    void execFileSync('prlimit', ['--pid', String(sidecar.pid), `--fsize=${bytes}:`]);
  limit('64');
  let answered = 0;
  let refused = await embed(sidecar, inputs(1));
  for (; refused.status === 200 && answered < 50; refused = await embed(sidecar, inputs(1))) answered += 1;
  t.match(await refused.json(), { error: { code: 'spool_unhealthy' } });
  leaving.abort();
  t.equal(await held, 'left');
  await counted(sidecar, 'seats_busy', 0, { model: EMBED });
  limit('unlimited');
  await sidecar.logged('usage spool healthy');
  t.equal((await embed(sidecar, inputs(2))).status, 200);
  sidecar.child.kill('SIGTERM');
  t.equal((await sidecar.exited()).code, 0);
  const closes = await closesOf(t, dir);
  const of = (outcome: string): readonly UsageRecord[] => closes.filter((record) => record.outcome === outcome);
  t.match(of('cancelled'), [{ promptTokens: 4097, price: { picodollars: '4097000000' } }]);
  t.same(
    of('done').map(({ promptTokens }) => promptTokens),
    [...Array.from({ length: answered }, () => 4), 8],
  );
});

t.test('one of two engines is killed within lists: its own ends, the other’s continues', async (t) => {
  const dir = t.testdir();
  const sidecar = await start(t, dir, 2);
  const leaving = new AbortController();
  const ends: string[] = [];
  // A list of one part, which stays on its replica.
  const part = [...inputs(1000), [STUB_JOB.hold]];
  const lists = [0, 1].map(async () => {
    const end = await embed(sidecar, part, leaving.signal).then(
      ({ status }) => String(status),
      () => 'left',
    );
    ends.push(end);
  });
  for (const replica of ['0', '1'])
    await sidecar.reaches('ra_sidecar_replica_seats_busy', 1, { model: EMBED, replica });
  const { pid } = await sidecar.logged('engine forked', 1, ({ replica }) => replica === 1);
  process.kill(Number(pid), 'SIGKILL');
  await Promise.race(lists);
  t.same(ends, ['502']);
  t.equal((await embed(sidecar, inputs(2000))).status, 200, 'others are served');
  await sidecar.logged('engine ready', 3);
  leaving.abort();
  await Promise.all(lists);
  t.same(ends, ['502', 'left']);
  sidecar.child.kill('SIGTERM');
  await sidecar.exited();
  const closes = await closesOf(t, dir);
  t.same(
    closes.map(({ outcome, price }) => `${outcome} ${price?.picodollars}`).sort(),
    ['cancelled 4001000000', 'done 8000000000', 'failed 0'],
    'what was computed for a caller who left is billed, what failed is not',
  );
});
