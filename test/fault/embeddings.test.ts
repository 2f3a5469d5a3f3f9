/**
 * Lists of inputs while the sidecar is killed, its spool is full, one of its engines is killed, and callers leave. Engines are stubs: an
 * input's first token selects what they do.
 */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
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

const dir = t.testdir();

/** A sidecar with two engines of one model, each time with the same data folder. */
async function start(): Promise<Sidecar> {
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
      models: [{ id: EMBED, kind: 'embedding', file, seats: 2, contextPerSeat: 64, replicas: 2 }],
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

// The next sidecar has its data folder.
await t.test('a sidecar that is killed within a list', async (t) => {
  const killed = await start();
  const held = embed(killed, HELD).catch(() => 'cut off');
  await counted(killed, 'seats_busy', 1, { model: EMBED });
  // Once this one's record is durable, that of the list is too.
  t.equal((await embed(killed, inputs(1100))).status, 200);
  killed.child.kill('SIGKILL');
  await killed.exited();
  t.equal(await held, 'cut off');
});

const sidecar = await start();
/** Requests of one input that were answered while the spool had no room. */
let answered = 0;

t.test('while the spool is full nothing begins, what runs ends, and nothing is lost', async (t) => {
  const leaving = new AbortController();
  const held = embed(sidecar, HELD, leaving.signal).catch(() => 'left');
  await counted(sidecar, 'seats_busy', 1, { model: EMBED });
  const limit = (bytes: string): void =>
    void execFileSync('prlimit', ['--pid', String(sidecar.pid), `--fsize=${bytes}:`]);
  limit('64');
  let refused = await embed(sidecar, inputs(1));
  for (; refused.status === 200 && answered < 50; refused = await embed(sidecar, inputs(1))) answered += 1;
  t.match(await refused.json(), { error: { code: 'spool_unhealthy' } });
  leaving.abort();
  t.equal(await held, 'left');
  await counted(sidecar, 'seats_busy', 0, { model: EMBED });
  limit('unlimited');
  await sidecar.logged('usage spool healthy');
  t.equal((await embed(sidecar, inputs(2))).status, 200);
});

t.test('one of two engines is killed within lists: its own ends, the other’s continues', async (t) => {
  const leaving = new AbortController();
  const ends: string[] = [];
  // A list of one part, which stays on its replica.
  const part = [...inputs(5), [STUB_JOB.hold]];
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
  t.equal((await embed(sidecar, inputs(3))).status, 200, 'others are served');
  await sidecar.logged('engine ready', 3);
  leaving.abort();
  await Promise.all(lists);
  t.same(ends, ['502', 'left']);
});

t.test('each request is closed once, and only what was computed for callers is billed', async (t) => {
  sidecar.child.kill('SIGTERM');
  t.equal((await sidecar.exited()).code, 0);
  const { records, damage } = await readAll(join(dir, 'usage'));
  t.same(damage, []);
  const ids = (kind: UsageRecord['kind']): string[] =>
    records
      .filter((record) => record.kind === kind)
      .map(({ id }) => id)
      .sort();
  t.same(ids('close'), ids('open'));
  const closes = records.filter(({ kind }) => kind === 'close');
  const billed = closes
    .filter(({ estimated }) => estimated !== true)
    .map(({ outcome, price }) => `${outcome}: ${Number(price?.picodollars) / 1e6} tokens`);
  t.same(
    billed.sort(),
    [
      'done: 4400 tokens',
      ...Array.from({ length: answered }, () => 'done: 4 tokens'),
      'cancelled: 4097 tokens',
      'done: 8 tokens',
      'failed: 0 tokens',
      'cancelled: 21 tokens',
      'done: 12 tokens',
    ].sort(),
  );
  t.same(
    closes.filter(({ estimated }) => estimated === true).map(({ price }) => price?.picodollars),
    ['0'],
    'nothing was answered of the list whose sidecar was killed',
  );
});
