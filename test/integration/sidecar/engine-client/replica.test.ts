import { fork } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { runChat, runDecision } from '../../../support/generate-job.js';
import t, { type Test } from 'tap';
import { ALL_ACCOUNTS, PREFIX_CHUNK } from '../../../../engine/protocol/cache-key.js';
import type { HashedFile } from '../../../../engine/protocol/file-key.js';
import type { ScoreJob } from '../../../../engine/protocol/jobs.js';
import { NO_REPORT } from '../../../../engine/protocol/messages.js';
import { StartGate } from '../../../../sidecar/engine-client/start-gate.js';
import type { EngineTiming, OnDemand } from '../../../../sidecar/engine-client/restart-policy.js';
import { EngineHarness, stubJob, STUB_ENTRY } from '../../../support/engine-harness.js';
import { eventually } from '../../../support/processes.js';
import { RecordingReceiver } from '../../../support/recording-receiver.js';
import { HELD_CACHE, type StubScript } from '../../../support/stub-script.js';
import { prefixOf } from '../../../../sidecar/engine-client/prefixes.js';

function launch(
  t: Test,
  script: StubScript = {},
  timing: Partial<EngineTiming> = {},
  entry = STUB_ENTRY,
  more: ConstructorParameters<typeof EngineHarness>[3] = {},
): EngineHarness {
  const harness = new EngineHarness(script, timing, entry, more);
  t.teardown(() => harness.engine.close());
  harness.engine.start();
  return harness;
}

function demand(more: Partial<OnDemand>): OnDemand {
  return { lazy: false, idleUnloadMs: 0, wanted: () => false, ...more };
}

/** A port to which a stub connects; the connection closes when the stub has ended. */
async function lifeline(t: Test): Promise<{ port: number; connected: Promise<Socket> }> {
  const server = createServer().listen(0, '127.0.0.1');
  t.teardown(() => server.close());
  await once(server, 'listening');
  const connected = (once(server, 'connection') as Promise<[Socket]>).then(([socket]) => socket.resume());
  return { port: (server.address() as AddressInfo).port, connected };
}

/**
 * Settles when a process has ended and this one can see that. No event reports it here, so it polls, for a minute at most.
 */
async function reaped(pid: number): Promise<void> {
  const end = performance.now() + 60_000;
  for (;;) {
    await new Promise((resolve) => setImmediate(resolve));
    try {
      process.kill(pid, 0);
    } catch {
      await new Promise((resolve) => setImmediate(resolve));
      return;
    }
    if (performance.now() > end) throw new Error(`process ${pid} is still there`);
  }
}

t.test('handshake: cold, then ready with the engine’s facts', async (t) => {
  const harness = launch(t);
  const { engine } = harness;
  t.equal(engine.state, 'cold');
  t.equal(engine.facts, undefined);
  t.ok(engine.readyInMs > 0);
  await harness.ready();
  t.equal(engine.state, 'ready');
  t.equal(engine.readyInMs, 0);
  t.match(engine.facts, { seats: 4, contextPerSeat: 64 });
});

t.test('a job while cold fails at once, not started', async (t) => {
  const { engine } = launch(t);
  const [receiver, cancelled] = [new RecordingReceiver(), new RecordingReceiver()];
  runChat(engine, stubJob('echo', 1), receiver);
  runChat(engine, stubJob('echo', 1), cancelled).cancel();
  t.same(await receiver.ended, { kind: 'lost', started: false });
  t.same(cancelled.calls, []);
});

t.test('jobs reach their receivers, many at once, each in order', async (t) => {
  const harness = launch(t);
  await harness.ready();
  const { engine } = harness;
  const receivers = Array.from({ length: 8 }, (_, i) => {
    const receiver = new RecordingReceiver();
    runChat(engine, { ...stubJob('echo', i, i + 1), n: 2 }, receiver);
    return receiver;
  });
  const scored = new RecordingReceiver();
  const question = { tail: Uint32Array.of(1), labels: Uint32Array.of(1, 2), temperature: 1 };
  const job: ScoreJob = {
    input: Uint32Array.of(1),
    questions: [question, question],
    temperature: 1,
    scope: ALL_ACCOUNTS,
    isolate: true,
    seats: 1,
  };
  runDecision(engine, job, scored);
  await Promise.all([...receivers, scored].map((receiver) => receiver.ended));
  receivers.forEach(({ calls }, i) => {
    const reply = (n: number): string[] => [`piece ${n} p${i} 1`, `piece ${n} p${i + 1} 2`, `finished ${n} stop 2 2`];
    t.same(calls, ['started 0', ...reply(0), ...reply(1), 'done']);
  });
  t.same(scored.calls, ['started 0', 'answer 0 0.5/0.5 0.5', 'answer 1 0.5/0.5 0.5', 'done']);
});

t.test('the prefixes in its sequences are known until it is lost', async (t) => {
  const harness = launch(t);
  const { engine } = harness;
  const job = stubJob('echo', ...Array.from({ length: PREFIX_CHUNK - 1 }, (_, i) => i));
  t.equal(engine.heldPrefixes().longestOf(prefixOf(job.prompt, ALL_ACCOUNTS)), 0);
  await harness.ready();
  const receiver = new RecordingReceiver();
  runChat(engine, job, receiver);
  await receiver.ended;
  t.equal(engine.heldPrefixes().longestOf(prefixOf(job.prompt, ALL_ACCOUNTS)), PREFIX_CHUNK);
  process.kill(engine.pid ?? 0, 'SIGKILL');
  await harness.loss();
  t.equal(engine.heldPrefixes().longestOf(prefixOf(job.prompt, ALL_ACCOUNTS)), 0);
  await harness.ready(2);
  t.equal(engine.heldPrefixes().longestOf(prefixOf(job.prompt, ALL_ACCOUNTS)), 0);
});

t.test('a new engine process is told which accounts were closed before it started', async (t) => {
  const harness = launch(t);
  const { engine } = harness;
  await harness.ready();
  engine.forget('first');
  process.kill(engine.pid ?? 0, 'SIGKILL');
  await harness.loss();
  engine.forget('second');
  await harness.ready(2);
  await eventually(
    'it forgets both',
    () => engine.report.cache.evictions.forgotten === HELD_CACHE.evictions.forgotten + 2,
  );
});

t.test('kill -9 during jobs: each fails with its own `started`, then the engine is back', async (t) => {
  const harness = launch(t);
  const { engine } = harness;
  await harness.ready();
  const running = Array.from({ length: 8 }, () => new RecordingReceiver());
  const queued = new RecordingReceiver();
  for (const receiver of running) runChat(engine, stubJob('hold'), receiver);
  await Promise.all(running.map((receiver) => receiver.begun));
  runChat(engine, stubJob('queued'), queued);

  let seatsBefore: number | undefined;
  const failed = queued.failed.bind(queued);
  queued.failed = (fault) => {
    seatsBefore = harness.seats.at(-1);
    failed(fault);
  };
  const before = engine.pid!;
  process.kill(before, 'SIGKILL');
  for (const receiver of running) t.same(await receiver.ended, { kind: 'lost', started: true });
  t.same(await queued.ended, { kind: 'lost', started: false });
  t.match(await harness.loss(), { reason: 'killed', signal: 'SIGKILL', final: false });
  t.equal(engine.state, 'cold');
  t.ok(engine.facts, 'the facts are kept');
  t.ok(engine.readyInMs > 0);
  t.equal(seatsBefore, 0, 'the queue has no seats before a job frees its seat');

  await harness.ready(2);
  t.same(harness.seats, [engine.facts?.seats, 0, engine.facts?.seats]);
  t.not(engine.pid, before);
  const receiver = new RecordingReceiver();
  runChat(engine, stubJob('echo', 5), receiver);
  t.equal(await receiver.ended, 'done');
});

t.test('exit reasons', async (t) => {
  const cases = [
    ['segv', 'crashed', undefined],
    ['abort', 'aborted', 'assertion'],
  ] as const;
  for (const [what, reason, hint] of cases) {
    const harness = launch(t);
    await harness.ready();
    const receiver = new RecordingReceiver();
    runChat(harness.engine, stubJob(what, 424242), receiver);
    t.same(await receiver.ended, { kind: 'lost', started: false });
    const lost = await harness.loss();
    t.equal(lost.reason, reason);
    t.equal(lost.detail, hint);
    t.notMatch(harness.logs.join('\n'), '424242', 'nothing that the child printed is logged');
  }
});

t.test('heartbeats without steps while a job waits: killed, restarted', async (t) => {
  const harness = launch(t, {}, { hangMs: 1000 });
  await harness.ready();
  const receiver = new RecordingReceiver();
  runChat(harness.engine, stubJob('stuck'), receiver);
  t.same(await receiver.ended, { kind: 'lost', started: true });
  t.match(await harness.loss(), { reason: 'hang', detail: 'stuck' });
  await harness.ready(2);
});

t.test('a model that cannot be served is not tried again', async (t) => {
  const harness = launch(t, { start: 'unable' });
  t.match(await harness.loss(), { reason: 'unable', detail: 'the file is not a model', final: true });
  t.equal(harness.engine.state, 'lost');
  t.equal(harness.engine.readyInMs, 0);
  const receiver = new RecordingReceiver();
  runChat(harness.engine, stubJob('echo'), receiver);
  t.same(await receiver.ended, { kind: 'lost', started: false });
  harness.engine.start();
  await reaped(harness.engine.pid!);
  t.same(harness.restarts, []);
  t.equal(harness.lost.length, 1);
});

t.test('failed starts are retried, with growing waits', async (t) => {
  const cases = [
    ['wrong-version', { reason: 'protocol', detail: 'version' }],
    ['ready-twice', { reason: 'protocol', detail: 'ready-twice' }],
    ['step-first', { reason: 'protocol', detail: 'step-before-ready' }],
    ['exit', { reason: 'exited', code: 3 }],
  ] as const;
  for (const [start, end] of cases) {
    // On a busy machine one that is ready twice is so for some time before it is killed.
    const harness = launch(t, { start }, { backoffMaxMs: 60_000 });
    t.match(await harness.loss(), end);
    t.equal(harness.engine.state, 'cold');
    t.equal(await harness.restart(), 5);
    t.equal(await harness.restart(2), 10);
    await harness.engine.close();
  }
});

t.test('too little memory at the first load is final; later, or for a lazy engine, the load is retried', async (t) => {
  const eager = launch(t, { start: 'unable-now' });
  t.match(await eager.loss(), { final: true, detail: 'no memory' });

  const lazy = launch(t, { start: 'unable-now' }, { backoffMinMs: 60_000, backoffMaxMs: 60_000 }, STUB_ENTRY, {
    onDemand: demand({ lazy: true }),
  });
  lazy.engine.wake();
  t.match(await lazy.loss(), { final: false });
  t.equal(lazy.engine.state, 'unloaded');
  t.ok(lazy.engine.readyInMs > 50_000, 'a request that arrives now gets a later time');
  lazy.engine.wake();
  t.equal(lazy.engine.state, 'unloaded', 'and does not start a load in vain');
  t.same(lazy.restarts, [60_000], 'the failed load is counted');
});

t.test(
  'too little memory for a lazy engine: only one that was ready is loaded again while a request waits',
  async (t) => {
    const demands = { waiting: 1 };
    const onDemand = demand({ lazy: true, wanted: () => demands.waiting > 0 });
    const soon = { backoffMinMs: 1, backoffMaxMs: 1 };
    const first = launch(t, { start: 'unable-now' }, soon, STUB_ENTRY, { onDemand });
    first.engine.wake();
    t.match(await first.loss(), { final: false });
    t.equal(first.engine.state, 'unloaded', 'its requests need not wait');

    const lazy = launch(t, {}, soon, STUB_ENTRY, { onDemand });
    lazy.engine.wake();
    await lazy.ready();
    lazy.engine.setup = { ...lazy.engine.setup, file: JSON.stringify({ start: 'unable-now' } satisfies StubScript) };
    process.kill(lazy.engine.pid ?? 0, 'SIGKILL');
    t.match(await lazy.loss(2), { final: false });
    t.match(await lazy.loss(3), { final: false }, 'without a new request');
    demands.waiting = 0;
    t.match(await lazy.loss(lazy.lost.length + 1), { final: false });
    t.equal(lazy.engine.state, 'unloaded');
  },
);

t.test('an engine that gets an unknown message ends, and the log shows why', async (t) => {
  const harness = launch(t);
  await harness.ready();
  const receiver = new RecordingReceiver();
  runChat(harness.engine, stubJob('refuse'), receiver);
  t.same(await receiver.ended, { kind: 'lost', started: false });
  t.match(await harness.loss(), { reason: 'exited', code: 4, detail: 'it received an unknown message' });
  await harness.ready(2);
});

t.test(
  'engines with a common gate load one after another, and each gets the bytes that are mapped by then',
  async (t) => {
    const gate = new StartGate();
    const first = launch(t, { start: 'silent' }, { startTimeoutMs: 60_000 }, STUB_ENTRY, { gate });
    let asked = 0;
    const second = launch(t, {}, {}, STUB_ENTRY, { gate, mappedElsewhere: () => (asked += 1) });
    t.ok(first.engine.pid);
    t.equal(second.engine.pid, undefined);
    t.equal(second.engine.state, 'cold');
    t.equal(asked, 0);
    await first.engine.close();
    await second.ready();
    t.equal(asked, 1);
    const third = launch(t, {}, {}, STUB_ENTRY, { gate });
    await third.ready();
  },
);

t.test(
  'it is forked before its weights are hashed, and has seats once both the load and the hash are done',
  async (t) => {
    const hashes: ((known: HashedFile | undefined) => void)[] = [];
    const weights = (): Promise<HashedFile | undefined> => new Promise((resolve) => hashes.push(resolve));
    // Less than the hash takes: the time to start does not run meanwhile.
    const harness = launch(t, {}, { startTimeoutMs: 5000 }, STUB_ENTRY, { weights });
    const { engine } = harness;
    t.match(harness.logs, [/^engine forked /]);
    await eventually('it opens its file', () => hashes.length > 0);
    t.equal(engine.state, 'cold');
    hashes[0]?.({ key: 'k', version: 'v' });
    await harness.ready();
    t.same(engine.setup.weights, { key: 'k', version: 'v' });
    process.kill(engine.pid ?? 0, 'SIGKILL');
    await eventually('the next one opens its file', () => hashes.length > 1);
    hashes[1]?.(undefined);
    await harness.ready(2);
    t.equal(harness.lost.length, 1, 'a file that cannot be hashed here is left to the engine');
  },
);

for (const fail of ['abort', 'no-step'] as const)
  t.test(`gpu: auto goes on with the next backend where one fails before its first step (${fail})`, async (t) => {
    const gpus = { names: ['cuda', 'vulkan'] as const, fail };
    const harness = launch(t, { gpus }, { backoffMinMs: 60_000, backoffMaxMs: 60_000 }, STUB_ENTRY, { gpu: 'auto' });
    await harness.ready();
    t.equal(harness.engine.facts?.gpu, false, 'at last the CPU');
    const lines = harness.logs.filter((line) => line.startsWith('GPU backend failed'));
    t.match(lines, [
      /"backend":"cuda".*"reason":".*another backend is used. To use this one: install NVIDIA's driver/,
      /"backend":"vulkan".*"reason":".*To use this one: install a newer Vulkan driver/,
    ]);
    t.match(
      lines[0],
      fail === 'abort' ? /"reason":"aborted: device-error;/ : /"reason":"unable: cannot decode: no kernel;/,
    );
    t.strictSame([lines.length, harness.lost.length, harness.restarts], [2, 0, [0, 0]], 'at once, and it is not lost');
    process.kill(harness.engine.pid ?? 0, 'SIGKILL');
    t.match(await harness.loss(), { reason: 'killed' });
  });

t.test(
  'a backend that was named, lack of memory, named devices and a CPU do not lead to another backend',
  async (t) => {
    const names = ['cuda', 'vulkan'] as const;
    const named = launch(t, { gpus: { names, fail: 'abort' } }, {}, STUB_ENTRY, { gpu: 'cuda' });
    t.match(await named.loss(3), { final: true, detail: /crash \(aborted: device-error\)/ });
    const full = launch(t, { gpus: { names, fail: 'no-memory' } }, {}, STUB_ENTRY, { gpu: 'auto' });
    t.match(await full.loss(), { final: true, detail: 'failed to allocate' });
    const devices = { gpu: 'auto', devices: ['0'] } as const;
    const pinned = launch(t, { gpus: { names, fail: 'abort' } }, {}, STUB_ENTRY, devices);
    t.match(await pinned.loss(3), { final: true });
    const last = launch(t, { gpus: { names, fail: 'on-cpu' } }, {}, STUB_ENTRY, { gpu: 'auto' });
    t.match(await last.loss(3), { final: true }, 'no device was found before');
    for (const { logs } of [named, full, pinned, last])
      t.notOk(logs.some((line) => line.startsWith('GPU backend failed')));
  },
);

t.test('lazy: no process before wake()', async (t) => {
  const harness = launch(t, {}, {}, STUB_ENTRY, { onDemand: demand({ lazy: true }) });
  const { engine } = harness;
  t.equal(engine.pid, undefined);
  t.match(engine, { state: 'unloaded', onDemand: true, facts: undefined });
  t.ok(engine.readyInMs > 0);
  const early = new RecordingReceiver();
  runChat(engine, stubJob('echo', 1), early);
  t.same(await early.ended, { kind: 'lost', started: false });
  engine.wake();
  engine.wake();
  t.equal(engine.state, 'cold');
  await harness.ready();
  t.equal(harness.logs.filter((line) => line.startsWith('engine forked')).length, 1);
  const receiver = new RecordingReceiver();
  runChat(engine, stubJob('echo', 1), receiver);
  t.equal(await receiver.ended, 'done');
});

t.test('idle: shut down, its process ended, and loaded again by wake(), also while it ends', async (t) => {
  let looks = 0;
  let wanted = true;
  // Five idle times with a waiting request, then without.
  const onDemand = demand({ idleUnloadMs: 80, wanted: () => wanted && (wanted = ++looks < 40) });
  const harness = launch(t, {}, {}, STUB_ENTRY, { onDemand });
  const { engine } = harness;
  t.equal(engine.onDemand, false, 'eager until then');
  await harness.ready();
  const pid = engine.pid!;
  const receiver = new RecordingReceiver();
  runChat(engine, stubJob('slow', 60), receiver);
  t.equal(await receiver.ended, 'done', 'nothing is unloaded during a job');
  t.equal(harness.unloads, 0);
  await harness.unloaded();
  t.equal(looks, 40, 'nor while a request waits');
  t.match(engine, { state: 'unloaded', onDemand: true });
  t.ok(engine.facts, 'its facts stay known');
  t.equal(engine.report, NO_REPORT, 'its process keeps nothing');
  engine.wake();
  await harness.ready(2);
  t.throws(() => process.kill(pid, 0), { code: 'ESRCH' }, 'the first has ended before the second is forked');
  t.not(engine.pid, pid);
  await harness.unloaded(2);
  await reaped(engine.pid!);
  t.same(harness.lost, [], 'none of it is logged as a loss');
  t.same(harness.restarts, []);
});

t.test('close while unloaded, and while a woken engine waits for the one that ends', async (t) => {
  const harness = launch(t, {}, {}, STUB_ENTRY, { onDemand: demand({ idleUnloadMs: 10 }) });
  await harness.unloaded();
  harness.engine.wake();
  await harness.engine.close();
  t.equal(harness.engine.state, 'lost');
  harness.engine.wake();
  t.equal(harness.readyCount, 1);
});

t.test('protocol violations: killed; started jobs fail as protocol, the others as lost', async (t) => {
  for (const [what, detail] of [
    ['nonsense', 'malformed'],
    ['stranger', 'unknown-job'],
  ] as const) {
    const harness = launch(t);
    await harness.ready();
    const [running, culprit] = [new RecordingReceiver(), new RecordingReceiver()];
    runChat(harness.engine, stubJob('hold'), running);
    await running.begun;
    runChat(harness.engine, stubJob(what), culprit);
    t.same(await running.ended, { kind: 'protocol', started: true });
    t.same(await culprit.ended, { kind: 'lost', started: false });
    t.match(await harness.loss(), { reason: 'protocol', detail });
    await harness.ready(2);
  }
});

t.test('close: jobs fail, the process ends, no restart; a second call does nothing', async (t) => {
  const { port, connected } = await lifeline(t);
  const harness = launch(t, { lifeline: port });
  await harness.ready();
  const dead = once(await connected, 'close');
  const receiver = new RecordingReceiver();
  runChat(harness.engine, stubJob('hold'), receiver);
  await receiver.begun;
  const closing = harness.engine.close();
  t.equal(harness.engine.close(), closing);
  t.equal(harness.engine.state, 'lost');
  t.same(await receiver.ended, { kind: 'lost', started: true });
  await closing;
  await dead;
  harness.engine.start();
  t.same(harness.lost, []);
  t.same(harness.restarts, []);
  t.equal(harness.logs.length, 2, 'forked and ready, nothing else');
});

t.test('close kills an engine that does not react', async (t) => {
  const { port, connected } = await lifeline(t);
  const harness = launch(t, { deaf: true, lifeline: port }, { closeMs: 50 });
  await harness.ready();
  const dead = once(await connected, 'close');
  await harness.engine.close();
  await dead;
});

t.test('close before start, mid-start, while restarting', async (t) => {
  const idle = new EngineHarness();
  await idle.engine.close();
  idle.engine.start();
  t.equal(idle.engine.pid, undefined);

  const starting = launch(t, { start: 'silent', deaf: true }, { closeMs: 60_000 });
  const { pid } = starting.engine;
  await starting.engine.close();
  t.throws(() => process.kill(pid!, 0), { code: 'ESRCH' });

  const restarting = launch(t, { start: 'exit' }, { backoffMinMs: 60_000, backoffMaxMs: 60_000 });
  await restarting.restart();
  await restarting.engine.close();
  t.equal(restarting.lost.length, 1);
});

t.test('the engine ends with the process that owns it, killed or not', async (t) => {
  for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
    await t.test(signal, async (t) => {
      const { port, connected } = await lifeline(t);
      const owner = fork(fileURLToPath(new URL('../../../support/engine-owner.js', import.meta.url)), [
        JSON.stringify({ lifeline: port } satisfies StubScript),
      ]);
      t.teardown(() => owner.kill('SIGKILL'));
      await once(owner, 'message');
      const dead = once(await connected, 'close');
      owner.kill(signal);
      await dead;
    });
  }
});
