/** What a snapshot says of an engine. */
import t from 'tap';
import { createFairQueue } from '../../../sidecar/admission/fair-queue.js';
import { SeatBoard } from '../../../sidecar/api/seat-board.js';
import type { HostedModel } from '../../../sidecar/api/services.js';
import { SeatPlan } from '../../../sidecar/console/seat-plan.js';
import { takeSnapshot } from '../../../sidecar/console/snapshot.js';
import type { EngineView, Snapshot } from '../../../sidecar/console/views.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';
import { FakeClock } from '../../support/fake-clock.js';
import { FakeEngine } from '../../support/fake-engine.js';
import { FakeSpool } from '../../support/in-process.js';

async function engineOf(engine: FakeEngine): Promise<EngineView | undefined> {
  return (await snapshotOf(engine, new FakeClock())).models[0]?.engine;
}

async function snapshotOf(engine: FakeEngine, clock: FakeClock): Promise<Snapshot> {
  const config = { maxWaitMs: 1000, waitingPerSeat: 1, waitingBytes: 1000 };
  const queue = createFairQueue({ clock, random: () => 0, config, seats: 1 });
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
    },
  );
}

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
