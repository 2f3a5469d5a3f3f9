/**
 * External servers before a whole sidecar: how they are reached, how they misbehave, and several of one model. The servers
 * are stubs, the engine processes are real ones, and no native engine runs.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { env } from 'node:process';
import t from 'tap';
import { testPair } from '../support/certificates.js';
import { embeddedParts } from '../support/embedded-parts.js';
import { errorOf } from '../support/error-answer.js';
import { InProcess } from '../support/in-process.js';
import { KINDS, MISBEHAVIOURS, tokensBefore, type Case } from '../support/misbehaviours.js';
import { PATIENT_MS } from '../support/patience.js';
import type { RawConnection, RawResponse } from '../support/raw-http.js';
import { ServerStub, type StubKind, type StubOptions } from '../support/server-stub.js';

const KEY = 'the-key-of-the-server';

const dir = await mkdtemp(join(tmpdir(), 'ra-servers-'));
t.teardown(() => rm(dir, { recursive: true, force: true }));
const secretFile = join(dir, 'secret');
await writeFile(secretFile, `${KEY}\n`);
const socket = join(dir, 'server.sock');
const pair = testPair('a');
// Engine processes trust it besides Node's own roots.
env['NODE_EXTRA_CA_CERTS'] = pair.certFile;

const parts = await embeddedParts();

async function start(kind: StubKind, options?: StubOptions): Promise<ServerStub> {
  const stub = await ServerStub.start(t, kind, options);
  stub.hosts(parts);
  return stub;
}

const stubs = {
  'llama-server': await start('llama-server', { socket }),
  vllm: await start('vllm'),
  sglang: await start('sglang', { tls: pair, key: KEY }),
  first: await start('vllm'),
  second: await start('vllm'),
};
/** How each kind is reached. */
const REACHED: Readonly<Record<StubKind, object>> = {
  'llama-server': { socket },
  vllm: { url: stubs.vllm.url },
  sglang: { url: stubs.sglang.url, secretFile },
};
const sidecar = await InProcess.start(t, {
  config: { engine: { backoffMinMs: 10, backoffMaxMs: 20 } },
  models: [
    ...KINDS.map((kind) => ({
      id: kind,
      kind: 'chat' as const,
      seats: 4,
      ...(kind === 'sglang' && { prefixCache: { scope: 'all' } }),
      // A busy machine may pause for seconds; the seat of a caller who left is in use until the server says that it is free.
      engine: { kind, ...REACHED[kind], silentMs: PATIENT_MS, cancelWaitMs: 60_000 },
    })),
    // The same servers, whose silence is noticed.
    ...KINDS.map((kind) => ({
      id: `${kind}-silent`,
      kind: 'chat' as const,
      seats: 1,
      ...(kind === 'sglang' && { prefixCache: { scope: 'all' } }),
      engine: { kind, ...REACHED[kind], silentMs: 2000, tokenMs: 2000 },
    })),
    // Vectors and scores of the same servers.
    ...(['llama-server', 'vllm'] as const).flatMap((kind) =>
      (['embedding', 'rerank'] as const).map((what) => ({
        id: `${kind}-${what}`,
        kind: what,
        seats: 2,
        contextPerSeat: 256,
        engine: { kind, ...REACHED[kind], silentMs: PATIENT_MS },
      })),
    ),
    {
      id: 'several',
      kind: 'chat',
      seats: 1,
      engine: { kind: 'vllm', url: [stubs.first.url, stubs.second.url], tokens: 1000 },
    },
  ],
});

interface Ended {
  readonly status: number;
  readonly text: string;
  readonly finish: string | undefined;
  /** Codes of its error, or of its error frames. */
  readonly errors: readonly string[];
  /** Of a stream: whether it has its end. */
  readonly whole: boolean;
}

function body(model: string, stream: boolean): object {
  return { model, stream, messages: [{ role: 'user', content: 'Hello.' }] };
}

function endOf({ status, body }: RawResponse): Ended {
  const found = (pattern: RegExp): string[] => [...body.matchAll(pattern)].map(([, part = '']) => part);
  return {
    status,
    text: found(/"content":"([^"]*)"/g).join(''),
    finish: found(/"finish_reason":"(\w+)"/g)[0],
    errors: found(/"error":\{[^}]*"code":"(\w+)"/g),
    whole: body.includes('data: [DONE]'),
  };
}

/** One request, and what there is of it afterwards. */
async function observe(model: string, stream: boolean): Promise<object> {
  const response = await sidecar.post('/v1/chat/completions', body(model, stream));
  const requestId = response.field('x-request-id');
  const record = sidecar.spool.records.find((one) => one.kind === 'close' && one.requestId === requestId);
  const { outcome, promptTokens, completionTokens } = record ?? {};
  return {
    ...endOf(response),
    outcome,
    prompt: (promptTokens ?? NaN) > 0,
    completionTokens,
    metric: await counts(model),
  };
}

/** Requests of a model so far, by the type of their error. */
async function counts(model: string): Promise<Record<string, number>> {
  const name = 'gen_ai_server_request_duration_seconds';
  const page = await (await fetch(`http://127.0.0.1:${sidecar.app.operatorsPort}/metrics?name[]=${name}`)).text();
  const lines = page.split('\n').filter((line) => line.startsWith(`${name}_count{`));
  const own = lines.filter((line) => line.includes(`gen_ai_request_model="${model}"`));
  return Object.fromEntries(
    own.map((line) => [/error_type="(\w*)"/.exec(line)?.[1] ?? 'none', Number(line.slice(line.lastIndexOf(' ') + 1))]),
  );
}

/** What is right: a whole reply, or a fault before or behind its first token. */
function expected(one: Case, kind: StubKind, stream: boolean): object {
  if (one.ends === 'good') {
    const reply = { status: 200, text: 'abc', finish: 'stop', errors: [], whole: stream };
    return { ...reply, outcome: 'done', prompt: true, completionTokens: 4 };
  }
  const tokens = tokensBefore(one, kind);
  const begun = stream && tokens > 0;
  return {
    status: begun ? 200 : 502,
    text: begun ? 'abc'.slice(0, tokens) : '',
    finish: undefined,
    errors: ['bad_gateway'],
    whole: false,
    // A request that never ran is refused, once it has been back in the queue.
    outcome: one.ends.source === '^returned$' ? 'refused' : 'failed',
    prompt: (one.intact ?? 0) > 0,
    completionTokens: tokens,
  };
}

t.test('what the server had cached is counted, and it is asked with a salt of the account', async (t) => {
  const response = await sidecar.post('/v1/chat/completions', body('vllm', false));
  t.match(JSON.parse(response.body), { usage: { completion_tokens: 4, prompt_tokens_details: { cached_tokens: 1 } } });
  t.match(stubs.vllm.bodies.at(-1)?.['cache_salt'], /^[0-9a-f]{64}$/);
});

t.test('tools that the model may choose are refused, and a call that must come is constrained', async (t) => {
  const parameters = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] };
  const offered = { ...body('vllm', false), tools: [{ type: 'function', function: { name: 'f', parameters } }] };
  const refused = await sidecar.post('/v1/chat/completions', offered);
  t.equal(refused.status, 422);
  t.equal(errorOf(refused).param, 'tool_choice');
  await sidecar.post('/v1/chat/completions', { ...offered, tool_choice: 'required' });
  t.match(stubs.vllm.bodies.at(-1), { structured_outputs: { grammar: /^root ::= / } });
});

t.test('turns of a session are counted by the id in each header that clients send, and no seat is kept', async (t) => {
  const turns = (seat: string): Promise<number> =>
    sidecar.metric(`ra_sidecar_session_turns{model="vllm",seat="${seat}"}`);
  for (const name of ['x-claude-code-session-id', 'session-id', 'x-session-id', 'x-opencode-session']) {
    const [first, cold] = [await turns('first'), await turns('cold')];
    for (const id of ['one', 'one', 'two'])
      await sidecar.post('/v1/chat/completions', body('vllm', false), { [name]: `${name} ${id}` });
    t.strictSame([(await turns('first')) - first, (await turns('cold')) - cold], [2, 1], name);
  }
  t.equal(await sidecar.metric('ra_sidecar_seats_kept{model="vllm"}'), 0);
  t.equal(await turns('kept'), 0);
});

t.test('a server that refuses is given fewer, and who was refused goes back and is served', async (t) => {
  stubs.vllm.refused = new Set([stubs.vllm.bodies.length]);
  t.match(await observe('vllm', false), { status: 200, outcome: 'done' });
  t.equal(await sidecar.metric('ra_sidecar_seats{model="vllm"}'), 2);
});

t.test('the seat of a caller who disconnected stays in use until the server’s count has fallen', async (t) => {
  const busy = 'ra_sidecar_seats_busy{model="vllm"}';
  stubs.vllm.misbehaviour = { hangsAfter: 2, goesOnMs: Infinity };
  const leaving = await sidecar.begin('/v1/chat/completions', body('vllm', true));
  await leaving.until('"content":"a');
  leaving.close();
  await sidecar.until('ra_sidecar_cancels_total{model="vllm",phase="decoding"}', 1);
  t.equal(await sidecar.metric(busy), 1);
  stubs.vllm.misbehaviour = {};
  stubs.vllm.stopLeft();
  await sidecar.until(busy, 0);
  t.match(await observe('vllm', false), { status: 200 });
});

for (const kind of ['llama-server', 'vllm'] as const) {
  t.test(`${kind}: vectors and scores, and a server that fails`, async (t) => {
    const stub = stubs[kind];
    const lastOf = (route: string): unknown =>
      sidecar.spool.records.filter((record) => record.kind === 'close' && record.route === route).at(-1);
    const embed = (): Promise<RawResponse> =>
      sidecar.post('/v1/embeddings', { model: `${kind}-embedding`, input: [[5, 6, 7], [8]] });
    const rank = (more: object = {}): Promise<RawResponse> =>
      sidecar.post('/v1/rerank', { model: `${kind}-rerank`, query: 'q', documents: ['a', 'the rain', 'bb'], ...more });
    const length = Math.hypot(3, 1);
    t.match(JSON.parse((await embed()).body), {
      data: [
        { index: 0, embedding: [3 / length, 1 / length].map((value) => Math.round(Math.fround(value) * 1e10) / 1e10) },
        { index: 1 },
      ],
      usage: { prompt_tokens: 4 },
    });
    t.match(stub.bodies.at(-1), { input: [[5, 6, 7], [8]] });
    t.match(JSON.parse((await rank({ top_n: 2 })).body), {
      score_type: kind === 'vllm' ? 'probability' : 'logit',
      results: [{ index: 1 }, { index: 2 }],
    });
    t.match(stub.bodies.at(-1), { query: 'q', documents: ['a', 'the rain', 'bb'] });
    const long = await rank({ documents: ['a', 'word '.repeat(500)], truncate: true });
    t.match({ status: long.status, ...errorOf(long) }, { status: 400, param: 'documents[1]' });
    t.notMatch(errorOf(long).message, 'truncate', 'a text is not cut by its tokens');
    stub.misbehaviour = { status: 500 };
    for (const [ask, route] of [
      [embed, 'embeddings'],
      [rank, 'rerank'],
    ] as const) {
      const { status, body } = await ask();
      t.equal(status, 502);
      t.notMatch(body, 'PROMPT', 'the server’s text is not passed on');
      t.match(lastOf(route), { outcome: 'failed' });
    }
    stub.misbehaviour = {};
    t.equal((await embed()).status, 200);
  });
}

const HOW: Readonly<Record<StubKind, string>> = {
  'llama-server': 'over a Unix socket',
  vllm: 'over HTTP',
  sglang: 'over TLS with a key',
};

/** Signs of life of each kind that are not progress. */
const PINGS: Readonly<Record<StubKind, (promptTokens: number) => string>> = {
  'llama-server': (total) => `data: {"prompt_progress":{"total":${total},"cache":1,"processed":${total}}}\n\n`,
  vllm: () => ': ping\n\ndata: {"choices":[{"index":0,"text":"","token_ids":[],"finish_reason":null}]}\n\n',
  sglang: (total) =>
    `data: {"output_ids":[97,98],"meta_info":{"prompt_tokens":${total},"completion_tokens":2,"finish_reason":null}}\n\n`,
};

for (const kind of KINDS) {
  t.test(
    `${kind}, ${HOW[kind]}: each way to misbehave ends in the right answer, usage record and metric`,
    async (t) => {
      const stub = stubs[kind];
      const metric = await counts(kind);
      for (const one of MISBEHAVIOURS) {
        if (one.kinds?.includes(kind) === false) continue;
        stub.misbehaviour = one.does;
        const type = one.ends === 'good' ? 'none' : 'bad_gateway';
        for (const stream of [false, true]) {
          metric[type] = (metric[type] ?? 0) + 1;
          const found = await observe(kind, stream);
          t.strictSame(
            found,
            { ...expected(one, kind, stream), metric: { ...metric } },
            `${one.name}, ${stream ? 'streamed' : 'whole'}`,
          );
        }
      }
      stub.misbehaviour = { hangsAfter: 2, pings: PINGS[kind] };
      const silence: Case = { name: 'signs of life', does: {}, ends: /failed/, intact: 2 };
      t.strictSame(
        await observe(`${kind}-silent`, true),
        { ...expected(silence, kind, true), metric: { bad_gateway: 1 } },
        'signs of life in the middle of a reply',
      );
      stub.misbehaviour = {};
      t.match(await observe(kind, true), { text: 'abc', whole: true, outcome: 'done' }, 'afterwards');
      for (const model of [kind, `${kind}-silent`]) {
        const opened = sidecar.spool.records.filter((record) => record.kind === 'open' && record.model === model);
        const closed = sidecar.spool.records.filter((record) => record.kind === 'close' && record.model === model);
        t.ok(closed.length > 0);
        t.equal(new Set(closed.map(({ id }) => id)).size, closed.length, 'nothing is billed twice');
        t.strictSame(new Set(opened.map(({ id }) => id)), new Set(closed.map(({ id }) => id)), 'and nothing is lost');
        await sidecar.until(`ra_sidecar_seats_busy{model="${model}"}`, 0);
      }
    },
  );
}

/** What operators see on /readyz. */
async function readiness(): Promise<unknown> {
  return await (await fetch(`http://127.0.0.1:${sidecar.app.operatorsPort}/readyz`)).json();
}

/** A reply on each of the servers of `several`, which sends two tokens and no more. */
async function replyOnEach(): Promise<RawConnection[]> {
  for (const stub of [stubs.first, stubs.second]) stub.misbehaviour = { hangsAfter: 2 };
  const open = await Promise.all([0, 1].map(() => sidecar.begin('/v1/chat/completions', body('several', true))));
  await Promise.all(open.map((connection) => connection.until('"content":"a')));
  return open;
}

t.test(
  'several servers are replicas: the others serve while one is away, and it is used when it is back',
  async (t) => {
    const { port } = stubs.first;
    const open = await replyOnEach();
    t.strictSame([stubs.first.running, stubs.second.running], [1, 1], 'each has one');
    const answers = open.map((connection) => connection.response());
    await stubs.first.close();
    t.match(endOf(await Promise.race(answers)), { status: 200, text: 'ab', errors: ['bad_gateway'], whole: false });
    stubs.second.misbehaviour = {};
    const capacity = 'ra_sidecar_kv_capacity_tokens{model="several"}';
    await sidecar.until(capacity, 1000);
    const replica = (at: number): string => `ra_sidecar_replica_state{model="several",replica="${at}",state="ready"}`;
    await sidecar.until(replica(0), 0);
    t.equal(await sidecar.metric(replica(1)), 1);
    const gone = `the external server at http://127.0.0.1:${port}: it refuses connections (ECONNREFUSED): no process listens there`;
    t.match(await sidecar.seen('engine lost', ({ replica }) => replica === 0), { reason: `exited: ${gone}` });
    t.match(await sidecar.seen('external server cannot be used'), { model: 'several', replica: 0, reason: gone });
    t.match(await readiness(), { reasons: [`cold: several: replica 0: ${gone}`] });
    for (const connection of open) connection.close();
    await Promise.allSettled(answers);
    t.match(await observe('several', false), { status: 200, text: 'abc', outcome: 'done' });
    stubs.first = await start('vllm', { port });
    await sidecar.until(replica(0), 1);
    for (const connection of await replyOnEach()) connection.close();
    t.equal(stubs.first.bodies.length, 1, 'it is used again');
  },
);

t.test('a server that becomes another model is not used, and the reason is shown', async (t) => {
  stubs.vllm.tokenize = () => [1, 2, 3];
  stubs.vllm.version = '2';
  // Both models that are served by it find out, each in its own time.
  const { reason } = await sidecar.seen(
    'engine lost',
    (line) => line['model'] === 'vllm' && String(line['reason']).includes('the prompt of'),
  );
  const why = /the external server at \S+: the prompt of one message has \d+ tokens here, 3 there/;
  t.match(reason, why);
  const { reasons } = (await readiness()) as { readonly reasons: readonly string[] };
  t.match(
    reasons.find((one) => one.includes(' vllm:')),
    why,
  );
});
