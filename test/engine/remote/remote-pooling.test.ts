/** Vectors and scores of external servers, without processes: the shapes of llama-server and vLLM, and how each fault of theirs ends. */
import t, { type Test } from 'tap';
import type { ServedModel } from '../../../engine/protocol/inspect-messages.js';
import { startRemotePooling, type StartedPooling } from '../../../engine/remote/remote-pooling.js';
import { embeddedParts } from '../../support/embedded-parts.js';
import { embeddedTestModel } from '../../support/models.js';
import { ServerStub, type Misbehaviour } from '../../support/server-stub.js';

const KINDS = ['llama-server', 'vllm'] as const;
/** How long an answer may take. */
const SILENT_MS = 30_000;

const file = await embeddedTestModel();
const parts = await embeddedParts();

interface Harness {
  readonly stub: ServerStub;
  readonly started: StartedPooling;
  readonly suspected: () => number;
}

async function start(
  t: Test,
  server: (typeof KINDS)[number],
  kind: 'embedding' | 'rerank',
  prepare: (stub: ServerStub) => void = () => undefined,
  silentMs = SILENT_MS,
): Promise<Harness> {
  const stub = await ServerStub.start(t, server);
  stub.hosts(parts);
  prepare(stub);
  let [suspected, now] = [0, 0];
  // Its timers fire at once, and time passes by them alone.
  const clock = {
    now: () => now,
    after: (ms: number, then: () => void) => {
      now += ms;
      const soon = setImmediate(then);
      return () => clearImmediate(soon);
    },
  };
  const model: ServedModel = { file, kind, seats: 2, contextPerSeat: 64 };
  const remote = { kind: server, url: stub.url, cancelWaitMs: 1000, silentMs, tokenMs: 1000 };
  const suspect = (): Promise<void> => Promise.resolve(void (suspected += 1));
  const started = await startRemotePooling(model, remote, { clock, suspect });
  return { stub, started, suspected: () => suspected };
}

const [TOKENS, LENGTHS] = [Uint32Array.of(5, 6, 7, 8), Uint32Array.of(1, 3)];
const PAIRS = [
  { query: 'q', documents: ['a', 'three words here'] },
  { query: 'other', documents: ['bb'] },
];

const rounded = (values: Float32Array): number[] => Array.from(values, (value) => Math.round(value * 1000) / 1000);

/** What it answers in place of a result for each input. */
const WRONG: Readonly<Record<string, { readonly does: Misbehaviour; readonly ends: RegExp; readonly gone?: true }>> = {
  'a status': { does: { status: 500 }, ends: /it answers 500/ },
  'a reset': { does: { resetAfter: 0 }, ends: /\(gone\)/, gone: true },
  'no list': { does: { frame: () => ({}) }, ends: /a result for each input/ },
  'one less': { does: { frame: lists((list) => list.slice(1)) }, ends: /a result for each input/ },
  'one twice': { does: { frame: lists(([first]) => [first, first]) }, ends: /a result for each input/ },
  'an index outside': {
    does: { frame: lists((list) => list.map((one) => ({ ...one, index: 7 }))) },
    ends: /a result for each input/,
  },
  'no numbers': {
    does: { frame: lists((list) => list.map(({ index }) => ({ index, embedding: ['x', null] }))) },
    ends: /a result for each input/,
  },
};

/** A result of an answer. */
type Result = Readonly<Record<string, unknown>>;

/** Changes the list of an answer. */
function lists(
  change: (list: readonly Result[]) => readonly (Result | undefined)[],
): NonNullable<Misbehaviour['frame']> {
  return (answer) =>
    'data' in answer
      ? { ...answer, data: change(answer['data'] as Result[]) }
      : { ...answer, results: change(answer['results'] as Result[]) };
}

for (const server of KINDS) {
  t.test(`${server}: vectors of lists of tokens`, async (t) => {
    const { stub, started, suspected } = await start(t, server, 'embedding');
    const { pooling, facts } = started;
    t.match(facts, { width: 2, gpu: server, scores: undefined });
    const vectors = await pooling.decode(TOKENS, LENGTHS, []);
    // Of the inputs' lengths with 1, as units, in the order of the inputs, which the server's answer has not.
    t.same(rounded(vectors), [0.707, 0.707, 0.949, 0.316]);
    t.same(stub.bodies.at(-1), { model: 'stub', input: [[5], [6, 7, 8]], encoding_format: 'float' });
    stub.refused = new Set([stub.bodies.length]);
    t.same(await pooling.decode(TOKENS, LENGTHS, []), vectors, 'a server that was busy is asked again');
    stub.misbehaviour = { status: 429 };
    await t.rejects(pooling.decode(TOKENS, LENGTHS, []), /\(busy\)/, 'but not for ever');
    for (const [name, { does, ends, gone = false }] of Object.entries(WRONG)) {
      stub.misbehaviour = does;
      const before = suspected();
      await t.rejects(pooling.decode(TOKENS, LENGTHS, []), ends, name);
      t.equal(suspected() > before, gone, `${name}: it may be another server now`);
    }
    stub.misbehaviour = { frame: lists((list) => list.map((one) => ({ ...one, embedding: [1, 2, 3] }))) };
    await t.rejects(pooling.decode(TOKENS, LENGTHS, []), /a result for each input/, 'another width');
    stub.misbehaviour = {};
    t.same(await pooling.decode(TOKENS, LENGTHS, []), vectors, 'afterwards');
  });

  t.test(`${server}: scores of texts`, async (t) => {
    const { stub, started } = await start(t, server, 'rerank');
    const { pooling, facts } = started;
    t.match(facts, { width: 1, scores: server === 'vllm' ? 'probability' : 'logit' });
    const scores = await pooling.decode(TOKENS, Uint32Array.of(1, 1, 2), PAIRS);
    t.same(rounded(scores), [0.001, 0.016, 0.002], 'in the order of the documents');
    t.same(
      stub.bodies.slice(-2),
      PAIRS.map((pair) => ({ model: 'stub', ...pair })),
      'one request for each query',
    );
    const [pair] = PAIRS;
    for (const [name, { does, ends }] of Object.entries(WRONG)) {
      stub.misbehaviour = does;
      await t.rejects(pooling.decode(TOKENS, LENGTHS, pair ? [pair] : []), ends, name);
    }
    stub.misbehaviour = { frame: lists((list) => list.map((one) => ({ ...one, relevance_score: -3 }))) };
    const negative = pooling.decode(TOKENS, LENGTHS, PAIRS.slice(1));
    if (server === 'vllm') await t.rejects(negative, /a result for each input/, 'no probability');
    else t.same(rounded(await negative), [-3]);
  });
}

t.test('a server that is silent ends the step', async (t) => {
  const { stub, started } = await start(t, 'vllm', 'embedding', undefined, 1000);
  stub.misbehaviour = { hangsAfter: 0 };
  await t.rejects(started.pooling.decode(TOKENS, LENGTHS, []), /\(timeout\)/);
});

t.test('a server that cannot be used says why', async (t) => {
  for (const [kind, prepare, why] of [
    [
      'embedding',
      (stub) => (stub.tokenizeInput = () => [1, 2]),
      /its tokens of a text are not those of the file \(\d+ here, 2 there\)/,
    ],
    [
      'embedding',
      (stub) => (stub.misbehaviour = { status: 501 }),
      /it makes no vectors \(it answers 501\): is it started with --embedding\?/,
    ],
    [
      'rerank',
      (stub) => (stub.pairTokens = () => 3),
      /its tokens of a pair are not those of the file \(\d+ here, 3 there\)/,
    ],
    [
      'rerank',
      (stub) => (stub.misbehaviour = { status: 501 }),
      /it makes no scores \(it answers 501\): is it started as a reranker\?/,
    ],
    ['rerank', (stub) => (stub.context = 32), /its sequences have 32 tokens, fewer than contextPerSeat \(64\)/],
  ] as readonly [kind: 'embedding' | 'rerank', prepare: (stub: ServerStub) => void, why: RegExp][]) {
    await t.rejects(start(t, 'llama-server', kind, prepare), { message: why, mayMend: true });
  }
});
