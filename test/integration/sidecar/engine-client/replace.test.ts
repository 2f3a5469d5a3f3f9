/** A replica whose weights are replaced, on stand-in engines. */
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { runChat } from '../../../support/generate-job.js';
import t, { type Test } from 'tap';
import type { Clock } from '../../../../sidecar/lib/clock.js';
import { StartGate } from '../../../../sidecar/engine-client/start-gate.js';
import type { EngineJob, JobHandle, ProcessHold, Replaced } from '../../../../sidecar/engine-client/engine.js';
import type { EngineTiming } from '../../../../sidecar/engine-client/restart-policy.js';
import { EngineHarness, keepingClock, stubJob, STUB_ENTRY } from '../../../support/engine-harness.js';
import { eventually } from '../../../support/processes.js';
import { RecordingReceiver } from '../../../support/recording-receiver.js';
import { HELD_TOKENS, STUB_JOB, type StubScript } from '../../../support/stub-script.js';

type More = ConstructorParameters<typeof EngineHarness>[3];

async function launched(
  t: Test,
  script: StubScript = {},
  timing: Partial<EngineTiming> = {},
  more: More = {},
): Promise<EngineHarness> {
  const harness = new EngineHarness(script, timing, STUB_ENTRY, more);
  t.teardown(() => harness.engine.close());
  harness.engine.start();
  await harness.ready();
  return harness;
}

/** Other weights: the stub that they are does as the script says. */
function replace(
  { engine }: EngineHarness,
  script: StubScript = {},
  how: 'beside' | 'after' = 'beside',
): Promise<Replaced> {
  return engine.replace({ file: JSON.stringify({ ...script, bySeed: false }) }, how);
}

/** A job that runs until it is cancelled. */
async function hold({ engine }: EngineHarness): Promise<{ receiver: RecordingReceiver; end: () => void }> {
  const receiver = new RecordingReceiver();
  const { cancel } = runChat(engine, stubJob('hold'), receiver);
  await receiver.begun;
  return { receiver, end: () => void cancel() };
}

async function echoed({ engine }: EngineHarness): Promise<void> {
  const receiver = new RecordingReceiver();
  runChat(engine, stubJob('echo', 1), receiver);
  t.equal(await receiver.ended, 'done');
}

/** Connections of stubs to this port close when the stubs have ended. */
async function lifelines(t: Test): Promise<{ port: number; next: () => Promise<Socket> }> {
  const server = createServer().listen(0, '127.0.0.1');
  t.teardown(() => server.close());
  await once(server, 'listening');
  const next = async (): Promise<Socket> => ((await once(server, 'connection')) as [Socket])[0].resume();
  return { port: (server.address() as AddressInfo).port, next };
}

const forkedPids = ({ logs }: EngineHarness): number[] =>
  logs.flatMap((line) => (/^engine forked .*"pid":(\d+)/.exec(line) ?? []).slice(1).map(Number));

const forks = (harness: EngineHarness): number => forkedPids(harness).length;

const lastForked = (harness: EngineHarness): number => forkedPids(harness).at(-1) ?? NaN;

t.test('beside: new jobs go to the new process, and the old one ends with its last job', async (t) => {
  const files: string[] = [];
  const { port, next } = await lifelines(t);
  const connected = next();
  const harness = await launched(
    t,
    { lifeline: port },
    { reloadWaitMs: 20 },
    { mappedElsewhere: (file) => files.push(file) },
  );
  const dead = once(await connected, 'close');
  const before = harness.engine.pid;
  const { receiver, end } = await hold(harness);
  t.same(await replace(harness), { kind: 'replaced' });
  t.equal(files[1], harness.engine.setup.file, 'memory is checked for the file that is loaded');
  t.not(harness.engine.pid, before);
  t.same(harness.seats, [4, 4], 'it was never without seats');
  await echoed(harness);
  t.same(receiver.calls, ['started 0'], 'the old job still runs');
  t.match(
    await replace(harness),
    { kind: 'kept', why: /still has jobs after 0.02 s$/ },
    'a third process is not loaded',
  );
  t.equal(forks(harness), 2);
  end();
  await dead;
  // This process learns of its end a moment later.
  await eventually('another may be loaded', async () => (await replace(harness)).kind === 'replaced');
  t.same(harness.lost, [], 'none of it is a loss');
});

/** Starts a part of a list, whose first token selects what the stub does. */
function part(
  run: (job: EngineJob) => JobHandle | undefined,
  first = 7,
): { readonly receiver: RecordingReceiver; readonly handle: JobHandle | undefined } {
  const receiver = Object.assign(new RecordingReceiver(), { vectors: () => undefined });
  const job = { seats: 1, scope: 'a', weight: 1, tokens: Uint32Array.of(first), lengths: Uint32Array.of(1) } as const;
  return { receiver, handle: run({ kind: 'embed', job, receiver }) };
}

/** Ends one part of a list, whose next ones may follow. */
async function held({ engine }: EngineHarness): Promise<ProcessHold> {
  const { receiver, handle } = part((job) => engine.run(job));
  t.equal(await receiver.ended, 'done');
  const found = handle?.hold?.();
  if (!found) throw new Error('its process cannot be held');
  return found;
}

t.test('a list that is between two parts keeps the process that began it, which ends after the list', async (t) => {
  for (const how of ['beside', 'after'] as const) {
    const { port, next } = await lifelines(t);
    const connected = next();
    const harness = await launched(t, { lifeline: port }, { closeMs: 20_000 });
    const before = harness.engine.pid ?? NaN;
    const dead = once(await connected, 'close');
    const list = await held(harness);
    const replaced = replace(harness, {}, how);
    if (how === 'beside') t.same(await replaced, { kind: 'replaced' });
    const second = part(list.run);
    t.equal(await second.receiver.ended, 'done', how);
    t.doesNotThrow(() => process.kill(before, 0), 'a part has ended and the list has not');
    const last = part(list.run, STUB_JOB.hold);
    await last.receiver.begun;
    list.release();
    list.release();
    t.doesNotThrow(() => process.kill(before, 0), 'a job runs');
    void last.handle?.cancel();
    await dead;
    t.same(await replaced, { kind: 'replaced' });
    t.equal(part(list.run).handle, undefined, 'nothing is sent to a process that has ended');
    await echoed(harness);
  }
});

t.test('a list keeps a process that is to be replaced for a minute in all, however often it has a part', async (t) => {
  const minutes: (() => void)[] = [];
  const clock: Clock = {
    ...keepingClock,
    after: (ms, fn) => {
      if (ms !== 60_000) return keepingClock.after(ms, fn);
      minutes.push(fn);
      return () => undefined;
    },
  };
  const harness = await launched(t, {}, {}, { clock });
  const first = await held(harness);
  t.same(await replace(harness), { kind: 'replaced' });
  t.equal(await part(first.run).receiver.ended, 'done');
  t.equal(minutes.length, 1);
  minutes[0]?.();
  t.equal(part(first.run).handle, undefined);
  const second = await held(harness);
  const replaced = replace(harness, {}, 'after');
  await eventually('it waits for the list alone', () => Promise.resolve(minutes.length === 2));
  minutes[1]?.();
  t.same(await replaced, { kind: 'replaced' });
  t.equal(part(second.run).handle, undefined);
  await echoed(harness);
});

t.test('a process that is lost or closed is held no more', async (t) => {
  const harness = await launched(t);
  const list = await held(harness);
  await replace(harness);
  process.kill(forkedPids(harness)[0] ?? NaN, 'SIGKILL');
  await eventually('it is lost', () => Promise.resolve(part(list.run).handle === undefined));
  const other = await held(harness);
  await harness.engine.close();
  t.equal(part(other.run).handle, undefined);
});

t.test('a further replacement waits until the jobs of the process before the present one have ended', async (t) => {
  const harness = await launched(t);
  const { receiver, end } = await hold(harness);
  t.same(await replace(harness), { kind: 'replaced' });
  const again = replace(harness);
  await echoed(harness);
  t.equal(forks(harness), 2, 'it waits, and the present one serves');
  end();
  t.same(await again, { kind: 'replaced' });
  t.equal(forks(harness), 3);
  t.same(receiver.calls, ['started 0']);
  const closing = await hold(harness);
  await replace(harness);
  const never = replace(harness);
  await harness.engine.close();
  t.same(await never, { kind: 'kept', why: 'the sidecar ends', lacksMemory: false });
  t.same(await closing.receiver.ended, { kind: 'lost', started: true });
});

t.test('a replaced process that crashes fails its own jobs alone, and the log has it', async (t) => {
  const harness = await launched(t);
  const before = harness.engine.pid;
  const old = await hold(harness);
  await replace(harness);
  const young = await hold(harness);
  process.kill(before!, 'SIGKILL');
  t.same(await old.receiver.ended, { kind: 'lost', started: true });
  t.match(harness.logs.at(-1), new RegExp(`^engine lost .*"count":1.*"pid":${before}`));
  t.equal(harness.engine.state, 'ready');
  t.same(harness.seats, [4, 4]);
  t.same(young.receiver.calls, ['started 0']);
  t.same(harness.restarts, []);
});

t.test('after: it takes no job until its jobs have ended and the other is ready', async (t) => {
  const harness = await launched(t);
  const before = harness.engine.pid;
  const { receiver, end } = await hold(harness);
  const replaced = replace(harness, {}, 'after');
  t.match(harness.engine, { state: 'cold', problem: 'it loads other weights' });
  const refused = new RecordingReceiver();
  runChat(harness.engine, stubJob('echo', 1), refused);
  t.same(await refused.ended, { kind: 'lost', started: false });
  t.equal(forks(harness), 1);
  t.same(receiver.calls, ['started 0']);
  end();
  t.same(await replaced, { kind: 'replaced' });
  t.throws(() => process.kill(before!, 0), { code: 'ESRCH' });
  t.same(harness.seats, [4, 0, 4]);
  await echoed(harness);
});

t.test('after: jobs that do not end in time keep their process, which takes others again', async (t) => {
  const harness = await launched(t, {}, { reloadWaitMs: 20 });
  const { pid, setup } = harness.engine;
  const { receiver, end } = await hold(harness);
  const reported = (): boolean => harness.engine.report.tokens.running === HELD_TOKENS.running;
  await eventually('it has reported', () => Promise.resolve(reported()));
  const replaced = replace(harness, {}, 'after');
  t.match([harness.engine.state, reported()], ['cold', true], 'its sums do not fall meanwhile, and then grow again');
  t.same(await replaced, {
    kind: 'kept',
    why: 'its process still has jobs after 0.02 s',
    lacksMemory: false,
  });
  t.match(harness.engine, { state: 'ready', problem: undefined, pid, setup });
  t.same(harness.seats, [4, 0, 4]);
  await echoed(harness);
  t.same(receiver.calls, ['started 0'], 'it was not disturbed');
  end();
  await echoed(harness);
  t.equal(harness.engine.pid, pid, 'its end ends no process');
  t.same(await replace(harness, {}, 'after'), { kind: 'replaced' });
  t.same(harness.lost, []);
});

t.test('after: one that waited in vain for a cancel to be confirmed is still unloaded once it was idle', async (t) => {
  let wanted = true;
  const onDemand = { lazy: false, idleUnloadMs: 20, wanted: () => wanted };
  const harness = await launched(t, { confirmsCancels: true }, { reloadWaitMs: 100 }, { onDemand });
  const { end } = await hold(harness);
  end();
  const replaced = replace(harness, {}, 'after');
  wanted = false;
  t.match(await replaced, { kind: 'kept', why: /still has jobs/ });
  t.equal(harness.unloads, 0);
  t.equal(harness.engine.state, 'ready');
  await harness.unloaded();
  t.equal(harness.engine.state, 'unloaded');
});

t.test('weights that cannot be loaded change nothing', async (t) => {
  const harness = await launched(t);
  const { setup, pid } = harness.engine;
  t.match(await replace(harness, { start: 'unable' }), {
    kind: 'kept',
    why: 'the file is not a model',
    lacksMemory: false,
  });
  t.match(await replace(harness, { start: 'unable-now' }), { kind: 'kept', why: 'no memory', lacksMemory: true });
  t.match(harness.engine, { state: 'ready', pid, setup });
  await echoed(harness);
  t.match(await replace(harness, { start: 'unable' }, 'after'), { kind: 'kept' });
  await harness.ready(2);
  t.match(harness.engine, { state: 'ready', setup }, 'the old weights are loaded again');
});

t.test('other weights whose process is ready, and ends in the same turn, are loaded again', async (t) => {
  const harness = await launched(t);
  t.same(await replace(harness, { start: 'ready-twice' }), { kind: 'replaced' });
  t.match(await harness.loss(), { reason: 'protocol', detail: 'ready-twice' });
  await harness.restart();
});

t.test('a replica whose present weights cannot be loaded gets others', async (t) => {
  const harness = new EngineHarness({ start: 'unable' });
  t.teardown(() => harness.engine.close());
  harness.engine.start();
  t.match(await harness.loss(), { final: true });
  t.same(await replace(harness), { kind: 'replaced' });
  t.equal(harness.engine.state, 'ready');
  await echoed(harness);
});

t.test('one that is unloaded loads the other weights, and again after it was idle', async (t) => {
  const onDemand = { lazy: true, idleUnloadMs: 20, wanted: () => false };
  const harness = new EngineHarness({}, {}, STUB_ENTRY, { onDemand });
  t.teardown(() => harness.engine.close());
  harness.engine.start();
  const { setup } = harness.engine;
  t.match(await replace(harness, { start: 'unable' }), { kind: 'kept', lacksMemory: false });
  t.match(harness.engine, { state: 'unloaded', setup });
  t.same(await replace(harness), { kind: 'replaced' });
  t.equal(harness.engine.state, 'ready');
  await harness.unloaded();
  const { file } = harness.engine.setup;
  t.not(file, setup.file);
  harness.engine.wake();
  await harness.ready(2);
  t.equal(harness.engine.setup.file, file);
  t.same(harness.lost, []);
});

t.test('a request that wakes one while other weights are loaded is served by either', async (t) => {
  const onDemand = { lazy: true, idleUnloadMs: 0, wanted: () => true };
  const harness = new EngineHarness({}, {}, STUB_ENTRY, { onDemand });
  t.teardown(() => harness.engine.close());
  const replaced = replace(harness);
  harness.engine.wake();
  t.same(await replaced, { kind: 'replaced' });
  t.equal(harness.engine.state, 'ready');
  await echoed(harness);
  t.same(harness.lost, []);
});

t.test('close during a load beside: nothing of it is left, and nothing is adopted', async (t) => {
  const { port, next } = await lifelines(t);
  const gate = new StartGate();
  const harness = await launched(t, {}, {}, { gate });
  const connected = next();
  const replaced = replace(harness, { start: 'silent', deaf: true, lifeline: port });
  const dead = once(await connected, 'close');
  await harness.engine.close();
  t.same(await replaced, { kind: 'kept', why: 'the sidecar ends', lacksMemory: false });
  await dead;
  t.equal(harness.engine.state, 'lost');
  t.same(harness.seats, [4]);
  const other = await launched(t, {}, {}, { gate });
  t.equal(other.engine.state, 'ready', 'the next may load');
  t.match(await replace(harness), { kind: 'kept', why: 'the sidecar ends' });
  t.equal(forks(harness), 2);
});

t.test('close in the turn in which the other process became ready', async (t) => {
  const startTimeoutMs = 60_000;
  /** Called when a process is ready, after what follows from that at once and before all that awaits it. */
  let ready = (): void => undefined;
  const clock: Clock = {
    ...keepingClock,
    after: (ms, fn) => {
      const cancel = keepingClock.after(ms, fn);
      return () => {
        cancel();
        if (ms === startTimeoutMs) queueMicrotask(() => ready());
      };
    },
  };
  const harness = await launched(t, {}, { startTimeoutMs }, { clock });
  const closed = new Promise<void>((settle) => (ready = () => settle(harness.engine.close())));
  const replaced = replace(harness);
  await closed;
  t.same(await replaced, { kind: 'replaced' });
  t.throws(() => process.kill(lastForked(harness), 0), { code: 'ESRCH' }, 'it has ended');
  t.equal(forks(harness), 2);
  t.equal(harness.engine.state, 'lost');
});

t.test('close fails the jobs of a replaced process too, and ends it', async (t) => {
  const { port, next } = await lifelines(t);
  const connected = next();
  const harness = await launched(t, { lifeline: port, deaf: true }, { closeMs: 50 });
  const dead = once(await connected, 'close');
  const { receiver } = await hold(harness);
  await replace(harness);
  await harness.engine.close();
  t.same(await receiver.ended, { kind: 'lost', started: true });
  await dead;
  t.same(harness.lost, []);
});
