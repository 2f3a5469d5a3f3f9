import t from 'tap';
import { IdempotencyKeys } from '../../../sidecar/access/idempotency.js';
import { TokenQuotas } from '../../../sidecar/access/quotas.js';
import type { Lease } from '../../../sidecar/admission/seat-queue.js';
import { contractError } from '../../../sidecar/domain/errors.js';
import { createFairQueue } from '../../../sidecar/admission/fair-queue.js';
import type { EngineJob, GenerateJob, JobHandle } from '../../../sidecar/engine-client/engine.js';
import { imageFailed } from '../../../sidecar/api/image-refusals.js';
import {
  runJob,
  type JobImages,
  type JobParts,
  type JobRun,
  type RunEnd,
  type ImageFailure,
} from '../../../sidecar/api/run-job.js';
import { endUnfinished } from '../../../sidecar/api/end-unfinished.js';
import type { PreparedRequest } from '../../../sidecar/api/preflight.js';
import { RequestContext, type Stop } from '../../../sidecar/api/request-context.js';
import { SeatWait } from '../../../sidecar/api/seat-wait.js';
import type { UsageSession } from '../../../sidecar/api/usage-session.js';
import type { ChatParams } from '../../../sidecar/contracts/requests.js';
import type { Exchange } from '../../../sidecar/http/exchange.js';
import type { Signal } from '../../../sidecar/lib/abort.js';
import type { NoResult } from '../../../sidecar/prompts/prompt-maker.js';
import { SeatBoard } from '../../../sidecar/api/seat-board.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';
import { BUILT_IN_PRICES } from '../../../sidecar/usage/prices.js';
import { stubJob } from '../../support/engine-harness.js';
import { FakeClock } from '../../support/fake-clock.js';
import { FakeEngine } from '../../support/fake-engine.js';
import { ACME, FakeIdentity, FakeSpool, RecordingLog } from '../../support/in-process.js';
import { noLimits } from '../../support/keys.js';
import { postHead } from '../../support/request-head.js';

const unused = (): never => {
  throw new Error('not to be called here');
};

const usage = { open: () => undefined };

/** A chat whose results are dropped. */
function chatOf(n = 1): JobRun {
  const receiver = {
    started: () => undefined,
    cached: () => undefined,
    piece: () => undefined,
    call: () => undefined,
    finished: () => undefined,
  };
  const fields = Object.entries(stubJob('hold')).filter(([name]) => name !== 'seats');
  const job = Object.fromEntries(fields) as unknown as Omit<GenerateJob, 'seats'>;
  const needs = { promptTokens: 1, prefix: new Uint32Array(0) };
  return { kind: 'generate', plan: { needs, job: { ...job, n } }, receiver };
}

/** A request that has just got its seat. */
class Seated {
  readonly clock = new FakeClock();
  readonly engine = new FakeEngine();
  readonly queue = createFairQueue({
    clock: this.clock,
    random: () => 0,
    config: { maxWaitMs: 1000, waitingPerSeat: 1, waitingBytes: 1000 },
    seats: 1,
  });
  readonly board = new SeatBoard();
  readonly metrics = new Metrics(['m']);
  readonly disconnect = new AbortController();
  readonly context: RequestContext;

  constructor(deadlineAt?: number, seats = 1) {
    this.queue.resume(seats);
    const exchange: Exchange = {
      head: postHead(),
      gone: this.disconnect.signal,
      body: unused,
      reply: unused,
      fail: unused,
      stream: unused,
    };
    this.context = new RequestContext(exchange, 'chat', {
      clock: this.clock,
      date: () => new Date(0),
      random: () => 0,
      identity: new FakeIdentity(),
      prompts: { open: unused },
      models: new Map(),
      spool: new FakeSpool(),
      pricing: BUILT_IN_PRICES,
      credit: undefined,
      metrics: this.metrics,
      board: this.board,
      log: new RecordingLog(),
      idempotency: new IdempotencyKeys(this.clock, { maxKeys: 1, keepMs: 1 }),
      keyLimits: noLimits(),
      quotas: new TokenQuotas(() => new Date(0)),
      limits: { chatBytes: 1, inlineBytes: 1000, keepAliveMs: 1, streamIntervalMs: 0, timeoutMs: 0 },
      contract: 'strict',
      isolateDecisions: true,
      leaving: () => false,
      draining: () => false,
    });
    this.context.deadlineAt = deadlineAt;
  }

  /** A job that would take `wanted` seats. */
  async run(wanted = 1): Promise<RunEnd> {
    return runJob(this.context, await this.lease(wanted), chatOf(wanted), this.parts({ seatsWanted: wanted }));
  }

  parts(own: Partial<JobParts> = {}): JobParts {
    return { engine: this.engine, usage, seatsWanted: 1, draining: () => false, ...own };
  }

  async lease(seatsWanted = 1): Promise<Lease> {
    const ticket = this.queue.enter({ account: 'acme', weight: 4, bytes: 1, seatsWanted });
    if ('kind' in ticket) throw new Error(ticket.reason);
    ticket.ready({ promptTokens: 1 });
    const outcome = await ticket.outcome;
    if (outcome.kind !== 'seated') throw new Error(outcome.kind);
    return outcome.lease;
  }
}

t.test('after its deadline a job is cancelled and its seat free', async (t) => {
  const seated = new Seated(500);
  const end = seated.run();
  const job = (await seated.engine.generation(0)).started();
  seated.clock.advance(499);
  t.ok(job.live);
  seated.clock.advance(1);
  await job.cancelled;
  t.match(await end, { kind: 'failed', outcome: 'timeout', error: { code: 'timeout', status: 504 } });
  t.match(seated.queue.snapshot(), { busy: 0, released: { deadline: 1 } });
});

t.test('a seat stays in use until the engine confirms the cancel, and the answer does not wait for that', async (t) => {
  for (const [stop, kind, reason] of [
    [(seated: Seated) => seated.disconnect.abort(), 'cancelled', 'cancelled'],
    [(seated: Seated) => seated.clock.advance(500), 'failed', 'deadline'],
  ] as const) {
    const seated = new Seated(500);
    const end = seated.run();
    const job = (await seated.engine.generation(0)).started();
    let settle = (): void => undefined;
    job.stopped = new Promise<void>((resolve) => (settle = resolve));
    stop(seated);
    t.equal((await end).kind, kind);
    t.match(seated.queue.snapshot(), { busy: 1, released: {} });
    settle();
    await job.stopped;
    t.match(seated.queue.snapshot(), { busy: 0, released: { [reason]: 1 } });
  }
});

t.test('while a prompt is made again its request ends at its deadline, or when its caller leaves', async (t) => {
  for (const [cut, stop, released, outcome] of [
    [
      (seated: Seated) => seated.clock.advance(500),
      { kind: 'failed', error: { code: 'timeout' } },
      'deadline',
      'timeout',
    ],
    [(seated: Seated) => seated.disconnect.abort(), { kind: 'cancelled' }, 'cancelled', 'cancelled'],
  ] as const) {
    const seated = new Seated(500);
    const { context } = seated;
    /** Never makes it. */
    const tokenize = (signal: Signal): Promise<NoResult> =>
      new Promise((settle) => signal.addEventListener('abort', () => settle({ kind: 'aborted' })));
    const prepared = {
      caller: ACME,
      model: { queue: seated.queue },
      params: {},
      body: { length: 1, digest: '', tokenizeAgain: (_: unknown, signal: Signal) => tokenize(signal) },
    } as unknown as PreparedRequest<ChatParams>;
    const wait = SeatWait.enter(context, prepared, 1);
    if (wait.kind !== 'waiting') throw new Error('no place');
    const lease = await wait.seat({ promptTokens: 1 });
    if ('kind' in lease) throw new Error('no seat');
    const remake = (): Promise<Stop> => wait.tokenizeAgain(prepared, 'chat', 'p') as Promise<Stop>;
    const running = runJob(context, lease, chatOf(), seated.parts({ remake }));
    (await seated.engine.generation(0)).failed('stale');
    await new Promise(setImmediate);
    cut(seated);
    const end = await running;
    t.match(end, { kind: 'stopped', stop });
    t.match(seated.queue.snapshot(), { busy: 0, released: { [released]: 1 } });
    t.equal(seated.clock.pending, 0);
    const outcomes: string[] = [];
    const record = { close: (how: string) => Promise.resolve(outcomes.push(how)) } as unknown as UsageSession;
    Object.assign(context.exchange, { fail: () => undefined });
    if (end.kind !== 'done') await endUnfinished(context, record, end);
    t.strictSame(outcomes, [outcome]);
  }
});

t.test(
  'a prompt that is to be made again, of a body that made room for others, is refused as for want of room',
  async (t) => {
    const seated = new Seated();
    const body = { length: 1, digest: '', tokenizeAgain: () => Promise.resolve(undefined) };
    const prepared = {
      caller: ACME,
      model: { queue: seated.queue },
      params: {},
      body,
    } as unknown as PreparedRequest<ChatParams>;
    const wait = SeatWait.enter(seated.context, prepared, 1);
    if (wait.kind !== 'waiting') throw new Error('no place');
    t.match(await wait.tokenizeAgain(prepared, 'chat', 'p'), { kind: 'failed', error: { code: 'capacity_exceeded' } });
  },
);

t.test('a job that ends before its deadline leaves no timer', async (t) => {
  for (const [how, finish, released] of [
    ['done', (seated: Seated) => seated.engine.generations[0]?.done(), 'done'],
    ['cancelled', (seated: Seated) => seated.disconnect.abort(), 'cancelled'],
    ['failed', (seated: Seated) => seated.engine.generations[0]?.failed('failed'), 'failed'],
  ] as const) {
    const seated = new Seated(500);
    const end = seated.run();
    await seated.engine.generation(0);
    finish(seated);
    t.equal((await end).kind, how);
    t.equal(seated.clock.pending, 0, how);
    t.strictSame(seated.queue.snapshot().released, { [released]: 1 });
  }
});

t.test('without a deadline there is no timer at all', async (t) => {
  const seated = new Seated();
  const end = seated.run();
  const job = await seated.engine.generation(0);
  t.equal(seated.clock.pending, 0);
  job.done();
  t.equal((await end).kind, 'done');
});

t.test('a job takes the free seats, and each is available to others as soon as it is freed', async (t) => {
  const seated = new Seated(undefined, 3);
  const other = await seated.lease();
  const end = seated.run(16);
  const job = (await seated.engine.generation(0)).started();
  t.equal(job.job.seats, 2, 'all but the one taken');
  t.match(seated.queue.snapshot(), { busy: 3 });
  t.equal(job.reductions, 0);
  const waiting = seated.lease();
  t.match(seated.queue.snapshot(), { busy: 3, waiting: 1 });
  t.equal(job.reductions, 1, 'one was recalled');
  job.seatFreed();
  const next = await waiting;
  t.match(seated.queue.snapshot(), { busy: 3, waiting: 0 });
  next.release('done');
  job.done();
  t.equal((await end).kind, 'done');
  t.match(seated.queue.snapshot(), { busy: 1 });
  other.release('done');
});

t.test(
  'an engine that is lost before the start frees all seats, and the next try takes those that are free then',
  async (t) => {
    const seated = new Seated(undefined, 3);
    const end = seated.run(3);
    const job = await seated.engine.generation(0);
    t.equal(job.job.seats, 3);
    seated.queue.pause();
    seated.engine.lose();
    seated.engine.revive();
    await new Promise(setImmediate);
    t.match(seated.queue.snapshot(), { busy: 0, waiting: 1 });
    seated.queue.resume(2);
    const again = await seated.engine.generation(1);
    t.equal(again.job.seats, 2);
    again.done();
    t.equal((await end).kind, 'done');
    t.match(seated.queue.snapshot(), { busy: 0 });
  },
);

t.test('a start that throws leaves no seat, timer or listener behind', async (t) => {
  const seated = new Seated(500);
  const lease = await seated.lease();
  const run = (): never => {
    throw new Error('no engine');
  };
  const end = runJob(seated.context, lease, chatOf(), seated.parts({ engine: { run } }));
  await t.rejects(end, { message: 'no engine' });
  t.match(seated.queue.snapshot(), { busy: 0, released: { failed: 1 } });
  t.equal(seated.clock.pending, 0);
});

t.test('a job whose usage record cannot be opened is not started', async (t) => {
  const seated = new Seated(500);
  const refusal = contractError('spool_unhealthy', 'The spool is full.');
  const parts = seated.parts({ usage: { open: () => refusal } });
  t.strictSame(await runJob(seated.context, await seated.lease(), chatOf(), parts), {
    kind: 'failed',
    outcome: 'refused',
    error: refusal,
  });
  t.equal(seated.engine.generations.length, 0);
  t.match(seated.queue.snapshot(), { busy: 0, released: { failed: 1 } });
  t.equal(seated.clock.pending, 0);
});

t.test('a job may end before its start returns', async (t) => {
  for (const [finish, kind] of [
    [(end: EngineJob['receiver']) => end.done(), 'done'],
    [(end: EngineJob['receiver']) => end.failed({ kind: 'failed', started: false }), 'failed'],
  ] as const) {
    const seated = new Seated(500);
    const lease = await seated.lease();
    const run = ({ receiver }: EngineJob): JobHandle => {
      finish(receiver);
      return { cancel: () => void t.fail('cancelled, although it had ended'), reduceSeats: () => undefined };
    };
    const end = runJob(seated.context, lease, chatOf(), seated.parts({ engine: { run } }));
    t.equal((await end).kind, kind);
    t.equal(seated.clock.pending, 0);
    seated.disconnect.abort();
    t.match(seated.queue.snapshot(), { busy: 0 });
  }
});

t.test('a seated request is on the board until it ends, and no longer', async (t) => {
  const { context, board, clock } = new Seated();
  context.caller = ACME;
  context.model = 'm';
  clock.advance(5);
  // Its lease is never released: the request’s end counts.
  const lease = { seats: 1, waitedMs: 0 } as Lease;
  await context.awaitSeat(Promise.resolve({ kind: 'seated', lease }));
  const [holder] = board.holders('m');
  t.match(holder, { account: 'acme', class: 'standard', since: 5, context: { phase: 'waiting' } });
  t.strictSame(board.holders('other'), []);
  context.started(0);
  t.equal(holder?.context.phase, 'prefilling', 'read when the board is read');
  const second = { ...lease, seats: 2 };
  await context.awaitSeat(Promise.resolve({ kind: 'seated', lease: second }));
  t.strictSame(
    board.holders('m').map((each) => each.lease.seats),
    [2],
    'seated again it is there once',
  );
  context.ended(200);
  t.strictSame(board.holders('m'), []);
});

/** Images whose embeddings arrive when the test sends them. */
class Looked implements JobImages {
  readonly asked: number[] = [];
  closed = 0;
  settle: (result: Float32Array | ImageFailure) => void = () => undefined;

  embeddings(image: number): Promise<Float32Array | ImageFailure> {
    this.asked.push(image);
    return new Promise((resolve) => (this.settle = resolve));
  }

  close(): void {
    this.closed += 1;
  }
}

const IMAGE_FAILED: ImageFailure = { kind: 'image-failed', error: imageFailed() };

t.test('requested embeddings are sent to the engine', async (t) => {
  const seated = new Seated();
  const images = new Looked();
  const end = runJob(seated.context, await seated.lease(), chatOf(1), seated.parts({ images }));
  const job = (await seated.engine.generation(0)).started();
  job.needsImage(3);
  t.same(images.asked, [3]);
  const values = Float32Array.of(1);
  images.settle(values);
  await new Promise(setImmediate);
  t.same(seated.engine.supplied, [[3, values]]);
  t.equal(images.closed, 0);
  job.done();
  t.equal((await end).kind, 'done');
  t.equal(images.closed, 1);
});

t.test('an image without embeddings fails its job, which is cancelled', async (t) => {
  const seated = new Seated();
  const images = new Looked();
  const end = runJob(seated.context, await seated.lease(), chatOf(1), seated.parts({ images }));
  const job = (await seated.engine.generation(0)).started();
  job.needsImage(0);
  images.settle(IMAGE_FAILED);
  await job.cancelled;
  t.match(await end, { kind: 'failed', outcome: 'failed', error: { status: 502, code: 'bad_gateway' } });
  t.equal(images.closed, 1);
  t.match(seated.queue.snapshot(), { busy: 0 });
});

t.test('embeddings that arrive after the end change nothing', async (t) => {
  for (const late of [IMAGE_FAILED, Float32Array.of(1)]) {
    const seated = new Seated();
    const images = new Looked();
    const end = runJob(seated.context, await seated.lease(), chatOf(1), seated.parts({ images }));
    const job = (await seated.engine.generation(0)).started();
    job.needsImage(0);
    seated.disconnect.abort();
    t.equal((await end).kind, 'cancelled');
    images.settle(late);
    await new Promise(setImmediate);
    t.same(seated.engine.supplied, []);
  }
});

t.test(
  'the wait of a request that is seated again after a lost engine is counted once, as it was at first',
  async (t) => {
    const { clock, context, engine, metrics, queue } = new Seated();
    context.caller = ACME;
    context.model = 'm';
    queue.pause();
    const ticket = queue.enter({ account: 'acme', weight: 4, bytes: 1, seatsWanted: 1 });
    if ('kind' in ticket) throw new Error(ticket.reason);
    ticket.ready({ promptTokens: 1 });
    const first = context.awaitSeat(ticket.outcome);
    clock.advance(200);
    queue.resume(1);
    const lease = await first;
    if ('kind' in lease) throw new Error('no seat');
    const end = runJob(context, lease, chatOf(), { engine, usage, seatsWanted: 1, draining: () => false });
    const lost = await engine.generation(0);
    queue.pause();
    lost.failed('lost');
    await new Promise(setImmediate);
    clock.advance(300);
    queue.resume(1);
    (await engine.generation(1)).started().done();
    t.match(await end, { kind: 'done' });
    const { text } = await metrics.render();
    t.match(text, /^ra_sidecar_queue_wait_seconds_sum\{model="m",class="standard"\} 0\.2$/m);
    t.match(text, /^ra_sidecar_queue_wait_seconds_count\{model="m",class="standard"\} 1$/m);
  },
);
