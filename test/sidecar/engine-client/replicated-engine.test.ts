import t from 'tap';
import { NO_REPORT } from '../../../engine/protocol/messages.js';
import { PREFIX_CHUNK } from '../../../engine/protocol/cache-key.js';
import { tokenPrompt } from '../../../engine/protocol/prompt.js';
import type {
  EmbedJob,
  EmbedReceiver,
  EngineFacts,
  EngineJob,
  EngineState,
  GenerateJob,
  GenerationReceiver,
  JobHandle,
  Replaced,
  ScoreJob,
  ScoreReceiver,
} from '../../../sidecar/engine-client/engine.js';
import { HeldPrefixes, prefixOf, type ReplicaPrefixes } from '../../../sidecar/engine-client/prefixes.js';
import { ReplicatedEngine, type ReplicaPort } from '../../../sidecar/engine-client/replicated-engine.js';

const FACTS = { seats: 2, contextPerSeat: 1024, weightVersion: 'w' } as EngineFacts;
const JOB = {
  prompt: tokenPrompt(new Uint32Array(200)),
  input: new Uint32Array(200),
  scope: 'acme',
} as unknown as GenerateJob & ScoreJob;
const PREFIX = prefixOf(JOB.prompt, JOB.scope);
const RECEIVER = {} as GenerationReceiver & ScoreReceiver;
const CHAT: EngineJob = { kind: 'generate', job: JOB, receiver: RECEIVER };
const DECISION: EngineJob = { kind: 'score', job: JOB, receiver: RECEIVER };

class FakeReplica implements ReplicaPort {
  state: EngineState = 'cold';
  problem: string | undefined;
  onDemand = false;
  readonly setup = {} as ReplicaPort['setup'];
  facts: EngineFacts | undefined;
  readyInMs = 1000;
  pid = 7;
  readonly held = new HeldPrefixes(2, 1024);
  /** The last job. */
  job: GenerateJob | ScoreJob | undefined;
  jobs = 0;
  report = { ...NO_REPORT, tokens: { running: 1, kept: 10 } };
  /** The calls, in order. */
  readonly calls: string[] = [];

  wake(): void {
    this.calls.push('wake');
  }
  touch(): void {
    this.calls.push('touch');
  }
  run({ kind, job }: EngineJob): JobHandle {
    this.job = job as GenerateJob | ScoreJob;
    this.calls.push(kind);
    return { cancel: () => undefined, reduceSeats: () => undefined };
  }
  heldPrefixes(): ReplicaPrefixes {
    return this.held;
  }
  forget(scope: string): void {
    this.calls.push(`forget ${scope}`);
  }
  start(): void {
    this.calls.push('start');
  }
  replace(): Promise<Replaced> {
    this.calls.push('replace');
    return Promise.resolve({ kind: 'replaced' });
  }
  close(): Promise<void> {
    this.calls.push('close');
    return Promise.resolve();
  }
}

function three(): { engine: ReplicatedEngine; replicas: [FakeReplica, FakeReplica, FakeReplica] } {
  const replicas: [FakeReplica, FakeReplica, FakeReplica] = [new FakeReplica(), new FakeReplica(), new FakeReplica()];
  return { engine: new ReplicatedEngine(replicas, [1024, 4096, 1024]), replicas };
}

t.test('its state is the best of its replicas’', async (t) => {
  const { engine, replicas } = three();
  for (const [states, expected] of [
    [['lost', 'lost', 'lost'], 'lost'],
    [['lost', 'unloaded', 'lost'], 'unloaded'],
    [['unloaded', 'cold', 'lost'], 'cold'],
    [['cold', 'lost', 'ready'], 'ready'],
  ] as const) {
    replicas.forEach((replica, at) => (replica.state = states[at] ?? 'lost'));
    t.equal(engine.state, expected);
  }
});

t.test('readyInMs is the least of its replicas that are not lost', async (t) => {
  const { engine, replicas } = three();
  replicas[0].state = 'lost';
  replicas[0].readyInMs = 0;
  replicas[1].readyInMs = 300;
  t.equal(engine.readyInMs, 300);
  replicas.forEach((replica) => (replica.state = 'lost'));
  t.equal(engine.readyInMs, 0);
});

t.test('a job goes to the replica that its lease names, and prevents the others from being unloaded', async (t) => {
  const { engine, replicas } = three();
  engine.run(CHAT, 1, PREFIX);
  engine.run(DECISION, 2, PREFIX);
  t.strictSame(
    replicas.map(({ calls }) => calls),
    [
      ['touch', 'touch'],
      ['touch', 'generate', 'touch'],
      ['touch', 'touch', 'score'],
    ],
  );
  t.throws(() => engine.run(CHAT, 3, PREFIX), /does not have/);
});

t.test('a part of a list runs on the process that began the list, where its seat is of other weights', async (t) => {
  const { engine, replicas } = three();
  const [replica] = replicas;
  const part: EngineJob = {
    kind: 'embed',
    job: JOB as unknown as EmbedJob,
    receiver: RECEIVER as unknown as EmbedReceiver,
  };
  const handle: JobHandle = { cancel: () => undefined, reduceSeats: () => undefined };
  let process: JobHandle | undefined = handle;
  const hold = { weightVersion: 'w', run: () => process, release: () => undefined };
  const isHeld = (): boolean => engine.run(part, 0, PREFIX, hold) === handle;
  replica.facts = FACTS;
  t.ok(isHeld(), 'its seat’s replica is not ready: it makes room for other weights');
  replica.state = 'ready';
  t.notOk(isHeld(), 'it has the same weights');
  replica.facts = { ...FACTS, weightVersion: 'other' };
  t.ok(isHeld());
  process = undefined;
  t.notOk(isHeld(), 'the process has ended');
  t.strictSame(
    replica.calls.filter((call) => call !== 'touch'),
    ['embed', 'embed'],
  );
});

t.test('what one replica has saved counts for those with equal states, and jobs name where it is', async (t) => {
  const { engine, replicas } = three();
  const hashes = PREFIX;
  const state = { file: 5, inode: 6, bytes: 1000, tokens: 199, ends: 0, changedAt: 1 };
  replicas[0].held.apply([
    { sequence: 0, hashes },
    { sequence: 2, hashes: hashes.subarray(0, 2), state },
  ]);
  const reach = (): number[] => [0, 1, 2].map((at) => engine.heldPrefixes(at).longestOf(hashes) / PREFIX_CHUNK);
  const elsewhere = (replica: number): unknown => {
    engine.run(CHAT, replica, hashes);
    return replicas[replica]?.job?.elsewhere;
  };
  t.strictSame(reach(), [3, 0, 0], 'it is not known what their states are');
  replicas[0].facts = { ...FACTS, states: 'w f16' };
  replicas[1].facts = { ...FACTS, states: 'w f16' };
  replicas[2].facts = { ...FACTS, states: 'w q8_0' };
  t.strictSame(reach(), [3, 2, 0], 'what is saved, not what is in its sequences');
  t.strictSame(elsewhere(1), { ...state, pid: 7 });
  t.equal(elsewhere(0), undefined, 'its own');
  t.equal(elsewhere(2), undefined, 'states of another kind');
  engine.run(DECISION, 1, hashes);
  t.strictSame(replicas[1].job?.elsewhere, { ...state, pid: 7 });
  replicas[1].held.apply([{ sequence: 0, hashes: hashes.subarray(0, 2) }]);
  t.equal(elsewhere(1), undefined, 'it has as much');
  replicas[1].held.apply([{ sequence: 0, hashes: hashes.subarray(0, 1) }]);
  t.strictSame(elsewhere(1), { ...state, pid: 7 });
  engine.run(CHAT, 1, prefixOf(JOB.prompt, 'globex'));
  t.equal(replicas[1].job?.elsewhere, undefined, 'of another account');
});

t.test('a state that a second replica has restored is there for a third, also without the first', async (t) => {
  const { engine, replicas } = three();
  const state = { file: 5, inode: 6, bytes: 1000, tokens: 199, ends: 0, changedAt: 1 };
  replicas.forEach((replica, at) => {
    replica.facts = { ...FACTS, states: 'w f16' };
    replica.pid = 100 + at;
  });
  const elsewhere = (): unknown => {
    engine.run(CHAT, 2, PREFIX);
    return replicas[2].job?.elsewhere;
  };
  replicas[0].held.apply([{ sequence: 2, hashes: PREFIX, state }]);
  t.strictSame(elsewhere(), { ...state, pid: 100 });
  replicas[1].held.apply([{ sequence: 2, hashes: PREFIX, state: { ...state, file: 9 } }]);
  t.match(elsewhere(), { inode: 6 });
  replicas[0].held.apply([{ sequence: 2, hashes: new Uint32Array(0) }]);
  t.strictSame(elsewhere(), { ...state, file: 9, pid: 101 }, 'by the second one’s descriptor');
  t.equal(engine.heldPrefixes(2).longestOf(PREFIX), 3 * PREFIX_CHUNK);
});

t.test('a state that may be longer than a seat is not there for the replica of that seat', async (t) => {
  const { engine, replicas } = three();
  replicas.forEach((replica, at) => {
    replica.facts = { ...FACTS, states: 'w f16', contextPerSeat: [8192, 1024, 8192][at] ?? 0 };
  });
  const state = { file: 5, inode: 6, bytes: 1000, tokens: 4000, ends: 0, changedAt: 1 };
  replicas[0].held.apply([{ sequence: 2, hashes: PREFIX, state }]);
  const reach = (): number[] => [0, 1, 2].map((at) => engine.heldPrefixes(at).longestOf(PREFIX) / PREFIX_CHUNK);
  t.strictSame(reach(), [3, 0, 3]);
  engine.run(CHAT, 1, PREFIX);
  t.equal(replicas[1].job?.elsewhere, undefined);
  replicas[0].held.apply([{ sequence: 2, hashes: new Uint32Array(0) }]);
  replicas[1].held.apply([{ sequence: 2, hashes: PREFIX, state: { ...state, tokens: 199 } }]);
  t.strictSame(reach(), [3, 3, 3], 'one of a shorter seat fits');
});

t.test('each job says whether other replicas run jobs too', async (t) => {
  const { engine, replicas } = three();
  const told = (): unknown[] => {
    engine.run(CHAT, 1, PREFIX);
    engine.run(DECISION, 2, PREFIX);
    return [replicas[1].job?.besideOthers, replicas[2].job?.besideOthers];
  };
  t.strictSame(told(), [undefined, undefined]);
  replicas[1].jobs = 3;
  t.strictSame(told(), [undefined, true], 'the own ones are known to its process');
});

t.test('facts are those of a replica, with the longest seats; tokens are sums over ready ones', async (t) => {
  const { engine, replicas } = three();
  t.equal(engine.facts, undefined);
  replicas[2].facts = FACTS;
  t.match(engine.facts, { weightVersion: 'w', contextPerSeat: 4096 });
  t.equal(engine.facts, engine.facts, 'made once');
  replicas[2].facts = { ...FACTS, weightVersion: 'v' };
  t.match(engine.facts, { weightVersion: 'v' });
  t.strictSame(engine.contexts, [1024, 4096]);
  const held = (): unknown => [engine.capacityTokens, engine.heldTokens.running, engine.heldTokens.kept];
  t.strictSame(held(), [0, 0, 0], 'its process is not ready any more');
  replicas[2].state = 'ready';
  t.strictSame(held(), [2048, 1, 10]);
  replicas[0].facts = FACTS;
  replicas[0].state = 'ready';
  t.strictSame(held(), [4096, 2, 20]);
  replicas[2].state = 'unloaded';
  t.strictSame(held(), [2048, 1, 10], 'its memory is freed');
  replicas[1].report = { ...NO_REPORT, cache: { ...NO_REPORT.cache, hits: 3 } };
  t.strictSame(
    engine.caches.map(({ hits }) => hits),
    [0, 3, 0],
  );
});

t.test('it is started, woken and closed as a whole', async (t) => {
  const { engine, replicas } = three();
  engine.start();
  engine.wake();
  engine.forget('scope');
  await engine.close();
  for (const { calls } of replicas) t.strictSame(calls, ['start', 'wake', 'forget scope', 'close']);
  t.equal(engine.onDemand, false);
  replicas.forEach((replica) => (replica.onDemand = true));
  t.equal(engine.onDemand, true);
  replicas[1].problem = 'why';
  t.equal(engine.problem, 'why');
});
