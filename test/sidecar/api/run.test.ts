/** The machine of a request, with a route whose answers are one word. */
import t from 'tap';
import { tokenPrompt } from '../../../engine/protocol/prompt.js';
import { SeatQueue } from '../../../sidecar/admission/queue.js';
import type { Lease } from '../../../sidecar/admission/types.js';
import { CHAT } from '../../../sidecar/api/chat.js';
import type { ImageFailure, JobImages } from '../../../sidecar/api/images.js';
import { imageFailed } from '../../../sidecar/api/refusals.js';
import type { ChatTokens, WorkRoute } from '../../../sidecar/api/route.js';
import { run } from '../../../sidecar/api/run.js';
import { SeatBoard, type HostedModel, type SeatHolder } from '../../../sidecar/api/services.js';
import type { Params } from '../../../sidecar/contracts/requests.js';
import type { EngineJob, GenerateJob, JobHandle, ProcessHold } from '../../../sidecar/engine-client/engine.js';
import { Body } from '../../../sidecar/http/body.js';
import type { Signal } from '../../../sidecar/lib/abort.js';
import type { Tokenized } from '../../../sidecar/prompts/prompt-maker.js';
import { Metrics } from '../../../sidecar/telemetry/metrics.js';
import { stubJob } from '../../support/engine-harness.js';
import { FakeClock } from '../../support/fake-clock.js';
import { FakeEngine } from '../../support/fake-engine.js';
import { FakeSpool } from '../../support/in-process.js';
import { exchangeWith, postHead } from '../../support/request-head.js';
import { routeServices } from '../../support/route-services.js';

/** Lets all settled promises continue. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const PROMPT: Tokenized = { kind: 'chat', prompt: tokenPrompt(Uint32Array.of(1)) };
const HEADERS = new Map([['content-type', 'application/json']]);

/** One model, and requests of which the test has the parts in its hands. */
class Seated {
  readonly clock = new FakeClock();
  readonly engine = new FakeEngine();
  readonly queue = new SeatQueue({
    clock: this.clock,
    random: () => 0,
    config: { maxWaitMs: 1000, waitingPerSeat: 1, waitingBytes: 1000 },
    seats: 1,
  });
  readonly board = new SeatBoard();
  readonly metrics = new Metrics(['m']);
  readonly spool = new FakeSpool();
  readonly disconnect = new AbortController();
  readonly body = new Body(new Uint8Array(2), 2, 0);
  /** Makes each prompt but the first one. */
  tokenizeAgain: (signal: Signal) => Promise<Tokenized> = () => Promise.resolve(PROMPT);
  /** Parts of the work that follow the first one; undefined: it has no parts. */
  further: number | undefined;
  readonly #timeoutMs: number;

  constructor(timeoutMs = 0, seats = 1) {
    this.#timeoutMs = timeoutMs;
    this.queue.resume(seats);
  }

  /** A request whose job would take `wanted` seats: `done`, or the code of its error; undefined: its caller was not answered. */
  async run(wanted = 1, images?: JobImages): Promise<string | undefined> {
    const { clock, engine, queue, board, metrics, spool, disconnect, body } = this;
    let said: string | undefined;
    const say = (word: string): void => {
      t.equal(said, undefined, 'it is answered once');
      said = word;
    };
    const { seats, ...stub } = stubJob('hold');
    const job: Omit<GenerateJob, 'seats'> = { ...stub, n: wanted };
    const needs = { promptTokens: seats, prefix: new Uint32Array(0) };
    const nothing = (): void => undefined;
    const route: WorkRoute<Params, ChatTokens> = {
      ...CHAT,
      maxBytes: () => 1000,
      form: () => 'chat',
      begin: ({ context }) => ({
        kind: 'work',
        seatsWanted: wanted,
        plan: () => ({ kind: 'planned', needs, completionTokens: 1, job, ...(images && { images }) }),
        results: { kind: 'generate', piece: nothing, call: nothing, finished: nothing },
        ...(this.further !== undefined && {
          next: () => ((this.further = (this.further ?? 0) - 1) < 0 ? undefined : { kind: 'next', job }),
        }),
        answer: () => context.reply({ status: 200 }),
      }),
    };
    const model: HostedModel = { id: 'm', kind: 'chat', ownedBy: '', created: 0, engine, scopeOf: () => 'all', queue };
    let made = 0;
    const open = {
      check: () => Promise.resolve({ kind: 'checked', params: { route: 'chat', model: 'm' } as Params } as const),
      tokenize: (signal: Signal) => (made++ === 0 ? Promise.resolve(PROMPT) : this.tokenizeAgain(signal)),
      close: nothing,
    };
    const limits = { chatBytes: 1, inlineBytes: 1000, keepAliveMs: 1, timeoutMs: this.#timeoutMs };
    const models = new Map([['m', model]]);
    const services = routeServices(clock, { prompts: { open: () => open }, models, spool, metrics, board, limits });
    const exchange = exchangeWith({
      head: postHead((name) => HEADERS.get(name)),
      gone: disconnect.signal,
      body: () => Promise.resolve(body),
      reply: () => say('done'),
      fail: ({ code }) => say(code),
    });
    await run(route, exchange, services);
    return said;
  }

  /** What the usage records say of how requests ended. */
  get outcomes(): readonly unknown[] {
    return this.spool.records.flatMap(({ kind, outcome }) => (kind === 'close' ? [outcome] : []));
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

t.test('a seat stays in use until the engine confirms the cancel, and the answer does not wait for that', async (t) => {
  for (const [stop, answer, reason] of [
    [(seated: Seated) => seated.disconnect.abort(), undefined, 'cancelled'],
    [(seated: Seated) => seated.clock.advance(500), 'timeout', 'deadline'],
  ] as const) {
    const seated = new Seated(500);
    const end = seated.run();
    const job = (await seated.engine.generation(0)).started();
    let settle = (): void => undefined;
    job.stopped = new Promise<void>((resolve) => (settle = resolve));
    stop(seated);
    t.equal(await end, answer);
    t.notOk(job.live, 'its cancel was sent');
    t.match(seated.queue.snapshot(), { busy: 1, released: {} });
    settle();
    await job.stopped;
    t.match(seated.queue.snapshot(), { busy: 0, released: { [reason]: 1 } });
  }
});

t.test('while a prompt is made again its request ends at its deadline, or when its caller leaves', async (t) => {
  for (const [cut, answer, released, outcome] of [
    [(seated: Seated) => seated.clock.advance(500), 'timeout', 'deadline', 'timeout'],
    [(seated: Seated) => seated.disconnect.abort(), undefined, 'cancelled', 'cancelled'],
  ] as const) {
    const seated = new Seated(500);
    /** Never makes it. */
    seated.tokenizeAgain = (signal) =>
      new Promise((settle) => signal.addEventListener('abort', () => settle({ kind: 'aborted' })));
    const end = seated.run();
    (await seated.engine.generation(0)).failed('stale');
    await settled();
    cut(seated);
    t.equal(await end, answer);
    t.match(seated.queue.snapshot(), { busy: 0, released: { [released]: 1 } });
    t.equal(seated.clock.pending, 0);
    t.strictSame(seated.outcomes, [outcome]);
  }
});

t.test(
  'a prompt that is to be made again, of a body that made room for others, is refused as for want of room',
  async (t) => {
    const seated = new Seated();
    const end = seated.run();
    const job = await seated.engine.generation(0);
    seated.body.freeBytes();
    job.failed('stale');
    t.equal(await end, 'capacity_exceeded');
    t.match(seated.queue.snapshot(), { busy: 0, released: { failed: 1 } });
  },
);

t.test('a prompt is made again for a replica with another tokenizer, a few times at most', async (t) => {
  const seated = new Seated();
  const end = seated.run();
  for (let i = 0; i < 5; i++) (await seated.engine.generation(i)).failed('stale');
  t.equal(await end, 'bad_gateway');
  t.equal(seated.engine.generations.length, 5);
  t.match(seated.queue.snapshot(), { busy: 0, released: { failed: 1 } }, 'it kept its seat meanwhile');
  t.strictSame(seated.outcomes, ['failed']);
});

t.test('a job that takes the free seats makes each available to others as soon as it is freed', async (t) => {
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
  t.equal(await end, 'done');
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
    await settled();
    t.match(seated.queue.snapshot(), { busy: 0, waiting: 1 });
    seated.queue.resume(2);
    const again = await seated.engine.generation(1);
    t.equal(again.job.seats, 2);
    again.done();
    t.equal(await end, 'done');
    t.match(seated.queue.snapshot(), { busy: 0 });
  },
);

t.test('a start that throws leaves no seat, timer or listener behind', async (t) => {
  const seated = new Seated(500);
  seated.engine.run = () => {
    throw new Error('no engine');
  };
  await t.rejects(seated.run(), { message: 'no engine' });
  t.match(seated.queue.snapshot(), { busy: 0, released: { failed: 1 } });
  t.equal(seated.clock.pending, 0);
});

t.test('a job may end before its start returns', async (t) => {
  for (const [finish, answer] of [
    [(end: EngineJob['receiver']) => end.done(), 'done'],
    [(end: EngineJob['receiver']) => end.failed({ kind: 'failed', started: false }), 'bad_gateway'],
  ] as const) {
    const seated = new Seated(500);
    seated.engine.run = ({ receiver }): JobHandle => {
      finish(receiver);
      return { cancel: () => void t.fail('cancelled, although it had ended'), reduceSeats: () => undefined };
    };
    t.equal(await seated.run(), answer);
    t.equal(seated.clock.pending, 0);
    seated.disconnect.abort();
    t.match(seated.queue.snapshot(), { busy: 0 });
  }
});

t.test('a list keeps the process of its last part, and no other', async (t) => {
  const seated = new Seated();
  const { engine } = seated;
  seated.further = 1;
  const kept = new Set<number>();
  const start = engine.run.bind(engine);
  engine.run = (asked) => {
    const index = engine.generations.length;
    const release = (): void => void kept.delete(index);
    const hold = (): ProcessHold => {
      kept.add(index);
      return { weightVersion: '', run: () => undefined, release };
    };
    return { ...start(asked), hold };
  };
  const end = seated.run();
  (await engine.generation(0)).started().done();
  const second = await engine.generation(1);
  t.same([...kept], [0]);
  second.started();
  t.same([...kept], [1]);
  second.done();
  t.equal(await end, 'done');
  t.same([...kept], []);
});

t.test('a seated request is on the board until it ends, and no longer', async (t) => {
  const seated = new Seated();
  const { board, clock, engine, queue } = seated;
  const one = (): SeatHolder | undefined => {
    const held = board.holders('m');
    t.ok(held.length < 2, 'seated again it is there once');
    return held[0];
  };
  clock.advance(5);
  const end = seated.run();
  const lost = await engine.generation(0);
  t.match(one(), { account: 'acme', class: 'standard', since: 5, context: { phase: 'waiting' } });
  t.strictSame(board.holders('other'), []);
  queue.pause();
  lost.failed('lost');
  await settled();
  t.equal(one(), undefined, 'it holds no seat');
  queue.resume(1);
  const job = (await engine.generation(1)).started();
  t.equal(one()?.context.phase, 'prefilling', 'read when the board is read');
  // The engine has not stopped: the seat is not returned yet, but the request has ended.
  job.stopped = new Promise(() => undefined);
  seated.disconnect.abort();
  await end;
  t.match(queue.snapshot(), { busy: 1 });
  t.equal(one(), undefined);
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
  const end = seated.run(1, images);
  const job = (await seated.engine.generation(0)).started();
  job.needsImage(3);
  t.same(images.asked, [3]);
  const values = Float32Array.of(1);
  images.settle(values);
  await settled();
  t.same(seated.engine.supplied, [[3, values]]);
  t.equal(images.closed, 0);
  job.done();
  t.equal(await end, 'done');
  t.equal(images.closed, 1);
});

t.test('an image without embeddings fails its job, which is cancelled', async (t) => {
  const seated = new Seated();
  const images = new Looked();
  const end = seated.run(1, images);
  const job = (await seated.engine.generation(0)).started();
  job.needsImage(0);
  images.settle(IMAGE_FAILED);
  await job.cancelled;
  t.equal(await end, 'bad_gateway');
  t.strictSame(seated.outcomes, ['failed']);
  t.equal(images.closed, 1);
  t.match(seated.queue.snapshot(), { busy: 0 });
});

t.test('embeddings that arrive after the end change nothing', async (t) => {
  for (const late of [IMAGE_FAILED, Float32Array.of(1)]) {
    const seated = new Seated();
    const images = new Looked();
    const end = seated.run(1, images);
    const job = (await seated.engine.generation(0)).started();
    job.needsImage(0);
    seated.disconnect.abort();
    t.equal(await end, undefined);
    images.settle(late);
    await settled();
    t.same(seated.engine.supplied, []);
  }
});

t.test(
  'the wait of a request that is seated again after a lost engine is counted once, as it was at first',
  async (t) => {
    const seated = new Seated();
    const { clock, engine, metrics, queue } = seated;
    queue.pause();
    const end = seated.run();
    await settled();
    clock.advance(200);
    queue.resume(1);
    const lost = await engine.generation(0);
    queue.pause();
    lost.failed('lost');
    await settled();
    clock.advance(300);
    queue.resume(1);
    (await engine.generation(1)).started().done();
    t.equal(await end, 'done');
    const { text } = await metrics.render();
    t.match(text, /^ra_sidecar_queue_wait_seconds_sum\{model="m",class="standard"\} 0\.2$/m);
    t.match(text, /^ra_sidecar_queue_wait_seconds_count\{model="m",class="standard"\} 1$/m);
  },
);
