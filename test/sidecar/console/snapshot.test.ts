/** What a snapshot says of an engine, and the seats that its requests have in the display. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import t from 'tap';
import { SeatQueue } from '../../../sidecar/admission/queue.js';
import { SeatBoard, type HostedModel, type SeatHolder } from '../../../sidecar/api/services.js';
import { SeatPlan, takeSnapshot, type WatchedServices } from '../../../sidecar/console/snapshot.js';
import type { EngineView, Snapshot } from '../../../sidecar/console/views.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';
import { Totals } from '../../../sidecar/usage/totals.js';
import { FakeClock } from '../../support/fake-clock.js';
import { FakeEngine } from '../../support/fake-engine.js';
import { FakeSpool } from '../../support/in-process.js';
import { MemorySpool } from '../../support/memory-spool.js';
import { usageRecord } from '../../support/usage-records.js';

async function engineOf(engine: FakeEngine): Promise<EngineView | undefined> {
  return (await snapshotOf(engine, new FakeClock())).models[0]?.engine;
}

async function snapshotOf(
  engine: FakeEngine,
  clock: FakeClock,
  watched: Partial<WatchedServices> = {},
): Promise<Snapshot> {
  const config = { maxWaitMs: 1000, waitingPerSeat: 1, waitingBytes: 1000 };
  const queue = new SeatQueue({ clock, random: () => 0, config, seats: 1 });
  const scopeOf = (): string => 'all';
  const model: HostedModel = { id: 'm', kind: 'chat', ownedBy: 'x', created: 1, engine, scopeOf, queue };
  const plan = new SeatPlan();
  return await takeSnapshot(
    { clock, metrics: new Metrics(['m']), startedAt: 0, intervalMs: 250, plan: () => plan },
    {
      leaving: () => false,
      spool: new FakeSpool(),
      credit: undefined,
      models: new Map([['m', model]]),
      board: new SeatBoard(),
      promptHosts: () => [],
      ...watched,
    },
  );
}

t.test('the usage of today by account, those that cost most first', async (t) => {
  const dir = t.testdir({});
  const spool = new MemorySpool();
  const at = new Date().toISOString();
  for (let account = 0; account < 22; account += 1) {
    const price = { version: 'v', picodollars: String(account * 1e9) };
    spool.append(usageRecord(String(account), 'close', { at, account: `a${account}`, price }));
  }
  spool.append(usageRecord('earlier', 'close', { at: '2026-01-01T00:00:00.000Z' }));
  const nothing = (): void => undefined;
  const listener = { damaged: nothing, unwritten: nothing, unreadable: nothing, incomplete: nothing };
  const totals = await Totals.open({ clock: new FakeClock(), spool, dir, listener });
  t.teardown(() => totals.sums.close());
  spool.flush();
  const { usage } = await snapshotOf(new FakeEngine(), new FakeClock(), { totals: () => totals });
  t.equal(usage?.day, at.slice(0, 10));
  t.equal(usage?.accounts.length, 20, 'also what became durable just now');
  t.strictSame(usage?.accounts[0], { account: 'a21', requests: 1, input: 12, cached: 0, output: 34, usd: 0.021 });
  t.strictSame(usage?.others, { accounts: 2, requests: 2, input: 24, cached: 0, output: 68, usd: 0.001 });
  t.equal((await snapshotOf(new FakeEngine(), new FakeClock())).usage, null, 'nothing is summed up');
});

t.test('the time since the start is not the wall clock’s, which may be set meanwhile', async (t) => {
  const clock = new FakeClock();
  clock.advance(60_000);
  t.match(await snapshotOf(new FakeEngine(), clock), { startedAt: 0, upMs: 60_000 });
});

t.test('the problem of a replica is not that of a model that is ready', async (t) => {
  const engine = new FakeEngine();
  engine.problem = 'out of memory';
  t.match(await engineOf(engine), { state: 'ready', problem: null, replicas: [{ problem: 'out of memory' }] });
  engine.state = 'lost';
  t.match(await engineOf(engine), { state: 'lost', problem: 'out of memory' });
});

t.test('it runs on the CPU, on the backend of a GPU, or on an external server', async (t) => {
  const engine = new FakeEngine();
  for (const [gpu, runsOn] of [
    [false, 'CPU'],
    ['cuda', 'cuda'],
    ['vllm', 'vllm'],
  ] as const) {
    if (engine.facts) engine.facts = { ...engine.facts, gpu };
    t.equal((await engineOf(engine))?.runsOn, runsOn);
  }
});

interface Movable extends SeatHolder {
  readonly lease: { seats: () => number; readonly lent: boolean };
}

function holder(seats: number): Movable {
  return {
    model: 'm',
    account: 'acme',
    class: 'standard',
    since: 0,
    lease: { seats: () => seats, lent: false },
    context: { phase: 'decoding' },
  };
}

t.test('requests keep their seats, and new ones get the lowest free ones', async (t) => {
  const plan = new SeatPlan();
  const [a, b, c, d] = [holder(1), holder(2), holder(1), holder(2)] as const;
  const seats = (holders: readonly Movable[]): (readonly number[])[] => plan.place(holders).map((each) => each.seats);
  t.strictSame(seats([a, b, c]), [[0], [1, 2], [3]]);
  b.lease.seats = () => 1;
  t.strictSame(seats([a, b, c]), [[0], [1], [3]], 'the highest is freed');
  t.strictSame(seats([b, c, d]), [[1], [3], [0, 2]]);
  b.lease.seats = () => 3;
  t.strictSame(seats([b, c]), [[1, 0, 2], [3]]);
});

t.test('each request has its own number', async (t) => {
  const plan = new SeatPlan();
  const [a, b] = [holder(1), holder(1)] as const;
  const ids = (holders: readonly Movable[]): number[] => plan.place(holders).map(({ id }) => id);
  t.strictSame(ids([a]), [1]);
  t.strictSame(ids([b]), [2], 'in the same seat');
  t.strictSame(ids([a]), [3], 'a request that ended and one that comes later are different');
});

t.test('a plan that is no longer used keeps no ended request', async (t) => {
  const plan = new SeatPlan();
  const place = (): WeakRef<SeatHolder> => {
    const here = holder(1);
    plan.place([here]);
    return new WeakRef(here);
  };
  const left = place();
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  // A reference that was made or read in this turn of the loop is kept until its end.
  await new Promise((resolve) => setImmediate(resolve));
  collect();
  t.equal(left.deref(), undefined);
  t.strictSame(plan.place([holder(1)])[0]?.seats, [0], 'its seat is free');
});

t.test('no seat has two requests, and each request has as many as its lease', async () => {
  fc.assert(
    fc.property(
      fc.array(fc.array(fc.tuple(fc.nat(9), fc.integer({ min: 1, max: 4 })), { maxLength: 8 })),
      (moments) => {
        const plan = new SeatPlan();
        const all = Array.from({ length: 10 }, () => holder(1));
        for (const moment of moments) {
          for (const [i, seats] of moment) all[i]!.lease.seats = () => seats;
          const here = [...new Set(moment.map(([i]) => all[i]!))];
          const placed = plan.place(here);
          const taken = placed.flatMap(({ seats }) => seats);
          if (new Set(taken).size !== taken.length) return false;
          if (placed.some(({ holder: { lease }, seats }) => seats.length !== lease.seats())) return false;
        }
        return true;
      },
    ),
  );
});
