import t from 'tap';
import { PROTOCOL_VERSION, type ToEngine } from '../../../engine/protocol/messages.js';
import type { ScoreJob, Output } from '../../../engine/protocol/jobs.js';
import { MAX_JOBS, Mux } from '../../../sidecar/engine-client/mux.js';
import { RecordingReceiver } from '../../support/recording-receiver.js';
import { generateJob, runChat, runDecision } from '../../support/generate-job.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';

const job = generateJob([1, 2, 3]);
const scoreJob: ScoreJob = {
  input: Uint32Array.of(1),
  scope: ALL_ACCOUNTS,
  isolate: true,
  seats: 1,
  questions: [
    { tail: Uint32Array.of(2), labels: Uint32Array.of(3, 4), temperature: 1 },
    { tail: Uint32Array.of(5), labels: Uint32Array.of(3, 4, 6), temperature: 1 },
  ],
  temperature: 1,
};

function setup(): { mux: Mux; sent: ToEngine[]; thrown: unknown[] } {
  const sent: ToEngine[] = [];
  const thrown: unknown[] = [];
  const mux = new Mux(
    (message) => sent.push(message),
    (error) => thrown.push(error),
  );
  return { mux, sent, thrown };
}

const started = (id: number): Output => ({ id, kind: 'started', cachedTokens: 0 });
const call = (id: number, index: number, name?: string): Output => ({
  id,
  kind: 'call',
  choice: 0,
  index,
  arguments: name === undefined ? '{}' : '',
  tokens: 1,
  ...(name !== undefined && { name }),
});
const piece = (id: number, text: string, choice = 0): Output => ({
  id,
  kind: 'piece',
  choice,
  channel: 'content',
  text,
  tokens: 1,
});
const finished = (id: number, choice = 0): Output => ({
  id,
  kind: 'finished',
  choice,
  reason: 'stop',
  completionTokens: 1,
  reasoningTokens: 0,
});
const answer = (id: number, question: number, ...p: number[]): Output => ({
  id,
  kind: 'answer',
  question,
  probabilities: Float64Array.from(p),
  labelMass: 1,
});
const done = (id: number): Output => ({ id, kind: 'done' });

t.test('jobs are sent with their own ids; outputs reach their receivers in order', async (t) => {
  const { mux, sent } = setup();
  const [a, b] = [new RecordingReceiver(), new RecordingReceiver()];
  runChat(mux, job, a);
  runDecision(mux, scoreJob, b);
  t.match(sent, [
    { v: PROTOCOL_VERSION, kind: 'generate', id: 1, job },
    { v: PROTOCOL_VERSION, kind: 'score', id: 2, job: scoreJob },
  ]);
  t.equal(mux.apply([started(1), started(2), piece(1, 'x'), answer(2, 1, 0.2, 0.3, 0.5)]), undefined);
  t.equal(mux.apply([finished(1), answer(2, 0, 0.5, 0.5), done(1), done(2)]), undefined);
  t.same(a.calls, ['started 0', 'piece 0 x 1', 'finished 0 stop - 1', 'done']);
  t.same(b.calls, ['started 0', 'answer 1 0.2/0.3/0.5 1', 'answer 0 0.5/0.5 1', 'done']);
  t.equal(mux.open, 0);
});

t.test('seats are freed one by one, except the last', async (t) => {
  const { mux } = setup();
  const receiver = new RecordingReceiver();
  runChat(mux, { ...job, n: 3, seats: 3 }, receiver);
  t.equal(mux.apply([started(1), { id: 1, kind: 'seatFreed' }, { id: 1, kind: 'seatFreed' }]), undefined);
  t.equal(mux.apply([{ id: 1, kind: 'seatFreed' }]), 'freed-last');
  t.same(receiver.calls, ['started 0', 'seatFreed', 'seatFreed']);
});

t.test('a cancelled job gets no more results, and the engine gets one cancel', async (t) => {
  const { mux, sent } = setup();
  const receiver = new RecordingReceiver();
  const { cancel } = runChat(mux, job, receiver);
  mux.apply([started(1)]);
  cancel();
  cancel();
  t.equal(mux.apply([piece(1, 'x'), finished(1), done(1)]), undefined);
  mux.lost('lost');
  t.same(receiver.calls, ['started 0']);
  t.same(sent.slice(1), [{ v: PROTOCOL_VERSION, kind: 'cancel', id: 1 }]);
});

t.test('a job is asked for one seat at a time, until it has ended', async (t) => {
  const { mux, sent } = setup();
  const { reduceSeats: narrow } = runChat(mux, job, new RecordingReceiver());
  narrow();
  narrow();
  const asked = { v: PROTOCOL_VERSION, kind: 'reduceSeats', id: 1 };
  t.same(sent.slice(1), [asked, asked]);
  mux.apply([started(1), finished(1), done(1)]);
  narrow();
  t.equal(sent.length, 3);
});

t.test('cancelling after the end sends nothing to the engine', async (t) => {
  const { mux, sent } = setup();
  const { cancel } = runChat(mux, job, new RecordingReceiver());
  mux.apply([started(1), finished(1), done(1)]);
  cancel();
  t.equal(sent.length, 1);
});

t.test('a receiver that cancels itself inside a step gets no more of that step', async (t) => {
  const { mux } = setup();
  const receiver = new RecordingReceiver();
  const { cancel } = runChat(mux, job, receiver);
  receiver.piece = () => void cancel();
  t.equal(mux.apply([started(1), piece(1, 'x'), finished(1), done(1)]), undefined);
  t.same(receiver.calls, ['started 0']);
});

t.test('a job that fails alone reports whether it had started', async (t) => {
  const { mux } = setup();
  const [a, b] = [new RecordingReceiver(), new RecordingReceiver()];
  runChat(mux, job, a);
  runChat(mux, job, b);
  mux.apply([started(1), { id: 1, kind: 'failed', reason: 'r' }, { id: 2, kind: 'failed', reason: 'r' }]);
  t.same(
    [a.fault, b.fault],
    [
      { kind: 'failed', started: true },
      { kind: 'failed', started: false },
    ],
  );
});

t.test('a lost engine fails all jobs, each with its own `started`', async (t) => {
  for (const kind of ['lost', 'protocol'] as const) {
    const { mux } = setup();
    const [a, b] = [new RecordingReceiver(), new RecordingReceiver()];
    runChat(mux, job, a);
    runDecision(mux, scoreJob, b);
    mux.apply([started(1)]);
    mux.lost(kind);
    mux.lost(kind);
    t.same(a.calls, ['started 0', `failed ${kind} true`]);
    t.same(b.calls, ['failed lost false'], 'not started: it may be given back, whatever the reason');
    t.equal(mux.open, 0);
  }
});

t.test("a reply's calls reach its receiver, each named once", async (t) => {
  const { mux } = setup();
  const receiver = new RecordingReceiver();
  runChat(mux, job, receiver);
  const calls = [call(1, 0, 'f'), call(1, 0), call(1, 0), call(1, 1, 'g'), call(1, 1)];
  t.equal(mux.apply([started(1), ...calls, finished(1), done(1)]), undefined);
  t.same(receiver.calls.slice(1, -2), [
    'call 0 0 f  1',
    'call 0 0 - {} 1',
    'call 0 0 - {} 1',
    'call 0 1 g  1',
    'call 0 1 - {} 1',
  ]);
});

t.test('protocol violations are reported and not forwarded', async (t) => {
  const cases: [string, Output[]][] = [
    ['unknown-job', [done(0)]],
    ['unknown-job', [done(3)]],
    ['not-started', [piece(1, 'x')]],
    ['not-started', [done(1)]],
    ['not-started', [{ id: 1, kind: 'seatFreed' }]],
    ['freed-last', [started(1), { id: 1, kind: 'seatFreed' }]],
    ['started-twice', [started(1), started(1)]],
    ['done-early', [started(1), finished(1, 0), done(1)]],
    ['wrong-choice', [started(1), piece(1, 'x', 2)]],
    ['wrong-choice', [started(1), finished(1, 1), piece(1, 'x', 1)]],
    ['wrong-choice', [started(1), finished(1, 0), finished(1, 0)]],
    ['wrong-call', [started(1), call(1, 0)]],
    ['wrong-call', [started(1), call(1, 1, 'f')]],
    ['wrong-call', [started(1), call(1, 0, 'f'), call(1, 0, 'f')]],
    ['wrong-call', [started(1), call(1, 0, 'f'), call(1, 1, 'f'), call(1, 0)]],
    ['wrong-kind', [started(2), call(2, 0, 'f')]],
    ['wrong-kind', [started(1), answer(1, 0, 1)]],
    ['wrong-kind', [started(2), piece(2, 'x')]],
    ['wrong-answer', [started(2), answer(2, 2, 1)]],
    ['wrong-answer', [started(2), answer(2, 0, 0.2, 0.3, 0.5)]],
    ['answered-twice', [started(2), answer(2, 0, 0.5, 0.5), answer(2, 0, 0.5, 0.5)]],
    ['done-early', [started(2), answer(2, 0, 0.5, 0.5), done(2)]],
  ];
  for (const [violation, outputs] of cases) {
    const { mux } = setup();
    const [a, b] = [new RecordingReceiver(), new RecordingReceiver()];
    runChat(mux, { ...job, n: 2 }, a);
    runDecision(mux, scoreJob, b);
    t.equal(mux.apply(outputs), violation);
    t.equal(a.calls.length + b.calls.length, outputs.length - 1, violation);
  }
});

t.test('a receiver that throws fails alone', async (t) => {
  const { mux, sent, thrown } = setup();
  const [bad, good] = [new RecordingReceiver(), new RecordingReceiver()];
  const error = new Error('bug');
  bad.piece = () => {
    throw error;
  };
  runChat(mux, job, bad);
  runChat(mux, job, good);
  t.equal(mux.apply([started(1), started(2), piece(1, 'x'), piece(2, 'y'), piece(1, 'z')]), undefined);
  t.same(thrown, [error]);
  t.same(bad.calls, ['started 0', 'failed failed true']);
  t.same(good.calls, ['started 0', 'piece 0 y 1']);
  t.same(sent.at(-1), { v: PROTOCOL_VERSION, kind: 'cancel', id: 1 });
});

t.test('a receiver that throws when it fails does not prevent the others from failing', async (t) => {
  const { mux, thrown } = setup();
  const [bad, good] = [new RecordingReceiver(), new RecordingReceiver()];
  bad.failed = () => {
    throw new Error('bug');
  };
  runChat(mux, job, bad);
  runChat(mux, job, good);
  mux.lost('lost');
  t.equal(thrown.length, 1);
  t.same(good.calls, ['failed lost false']);
});

t.test('the number of jobs is bounded', async (t) => {
  const { mux, sent } = setup();
  for (let i = 0; i < MAX_JOBS; i += 1) runChat(mux, job, new RecordingReceiver());
  const receiver = new RecordingReceiver();
  runChat(mux, job, receiver);
  const cancelled = new RecordingReceiver();
  runChat(mux, job, cancelled).cancel();
  t.same(receiver.calls, [], 'not from inside the call');
  t.same(await receiver.ended, { kind: 'failed', started: false });
  t.same(cancelled.calls, []);
  t.equal(sent.length, MAX_JOBS);
});

t.test('if the engine confirms cancels, a cancel settles once nothing of the job is computed', async (t) => {
  const { mux, sent } = setup();
  mux.confirmsCancels = true;
  const settled: string[] = [];
  const handles = ['confirmed', 'ended by itself', 'lost'].map((name) => {
    const handle = runChat(mux, job, new RecordingReceiver());
    void handle.cancel()?.then(() => settled.push(name));
    return handle;
  });
  t.equal(handles[0]?.cancel(), handles[0]?.cancel(), 'again: the same promise');
  t.equal(sent.filter(({ kind }) => kind === 'cancel').length, 3);
  await turn();
  t.strictSame(settled, []);
  t.equal(mux.apply([{ id: 1, kind: 'cancelled' }]), undefined);
  await turn();
  t.strictSame(settled, ['confirmed']);
  t.equal(mux.apply([{ id: 2, kind: 'done' }]), undefined);
  await turn();
  t.strictSame(settled, ['confirmed', 'ended by itself']);
  mux.lost('lost');
  await turn();
  t.strictSame(settled, ['confirmed', 'ended by itself', 'lost']);
  t.equal(handles[0]?.cancel(), undefined);
});

t.test('a job that its server refused may return to the queue, unless it had started', async (t) => {
  const { mux } = setup();
  const [taken, refused] = [new RecordingReceiver(), new RecordingReceiver()];
  runChat(mux, job, taken);
  runChat(mux, job, refused);
  t.equal(mux.apply([{ id: 2, kind: 'returned' }]), undefined);
  t.same(refused.calls, ['failed lost false']);
  t.equal(mux.apply([{ id: 1, kind: 'cancelled' }]), 'not-started');
  t.equal(mux.apply([started(1), { id: 1, kind: 'cached', tokens: 3 }]), undefined);
  t.same(taken.calls, ['started 0', 'cached 3']);
  t.equal(mux.apply([{ id: 1, kind: 'cancelled' }]), 'not-cancelled');
  t.equal(mux.apply([{ id: 1, kind: 'returned' }]), 'returned-late');
});

function turn(): Promise<void> {
  return new Promise((done) => setImmediate(done));
}

t.test('a job that requests embeddings gets them once, and lacks them until then', async (t) => {
  const { mux, sent } = setup();
  const wanted: number[] = [];
  const handle = runChat(
    mux,
    job,
    Object.assign(new RecordingReceiver(), { needsImage: (image: number) => wanted.push(image) }),
  );
  t.equal(mux.awaitingImages, 0);
  t.equal(mux.apply([started(1), { id: 1, kind: 'needsImage', image: 2 }]), undefined);
  t.same(wanted, [2]);
  t.equal(mux.awaitingImages, 1);
  const values = Float32Array.of(1, 2);
  handle.supply?.(1, values);
  t.equal(mux.awaitingImages, 1, 'of another image');
  handle.supply?.(2, values);
  handle.supply?.(2, values);
  t.equal(mux.awaitingImages, 0);
  t.same(
    sent.filter(({ kind }) => kind === 'embeddings'),
    [{ v: PROTOCOL_VERSION, kind: 'embeddings', id: 1, image: 2, values }],
  );
  handle.cancel();
  handle.supply?.(2, values);
  t.equal(sent.length, 3, 'after its end nothing is sent');
});

t.test('requests for embeddings are a violation before the start, twice, and of jobs without images', async (t) => {
  const seeing = Object.assign(new RecordingReceiver(), { needsImage: () => undefined });
  const needsImage = (id: number): Output => ({ id, kind: 'needsImage', image: 0 });
  for (const [outputs, violation] of [
    [[needsImage(1)], 'not-started'],
    [[started(1), needsImage(1), needsImage(1)], 'wrong-image'],
    [[started(2), needsImage(2)], 'wrong-image'],
  ] as const) {
    const { mux } = setup();
    runChat(mux, job, seeing);
    runChat(mux, job, new RecordingReceiver());
    t.equal(mux.apply(outputs), violation);
  }
});

t.test('those who hold the process keep it until it is to let go of them, or they release it', async (t) => {
  const { mux } = setup();
  const receiver = Object.assign(new RecordingReceiver(), { vectors: () => undefined });
  const tokens = { tokens: Uint32Array.of(7), lengths: Uint32Array.of(1) };
  const asked = { kind: 'embed', job: { seats: 1, scope: ALL_ACCOUNTS, weight: 1, ...tokens }, receiver } as const;
  const held = mux.run(asked).hold?.();
  mux.apply([started(1), { id: 1, kind: 'vectors', count: 1, values: new Float32Array(2) }, { id: 1, kind: 'done' }]);
  const idle: string[] = [];
  mux.whenIdle(() => idle.push('let go'));
  t.same(idle, []);
  mux.letHold(false);
  t.same(idle, ['let go']);
  t.equal(held?.run(asked), undefined);
  mux.letHold(true);
  mux.whenIdle(() => idle.push('released'));
  t.same(idle, ['let go']);
  void held?.run(asked)?.cancel();
  t.same(idle, ['let go']);
  held?.release();
  t.same(idle, ['let go', 'released']);
});
