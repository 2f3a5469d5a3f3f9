/** POST /v1/embeddings and POST /v1/rerank over HTTP, with stub engines: bodies, refusals, usage, and answers in pieces. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, symlinkSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import t, { type Test } from 'tap';
import { answersIn, ended } from '../support/batch-client.js';
import { errorOf } from '../support/error-answer.js';
import { ACME, chatBody, decisionBody, InProcess } from '../support/in-process.js';
import { embeddedTestModel, testModel } from '../support/models.js';
import { lastClose, startPriced } from '../support/priced-sidecar.js';
import type { RawResponse } from '../support/raw-http.js';
import { shareLanes } from '../support/shared-lanes.js';
import { eventually, isRunning } from '../support/processes.js';
import { STUB_JOB } from '../support/stub-script.js';

// In a file of its own as in a group, where sidecars follow one whose weights were replaced.
shareLanes(t);

const EMBEDDINGS = '/v1/embeddings';
const RERANK = '/v1/rerank';

/** Picodollars a token. */
const [VECTOR_RATE, SCORE_RATE] = [20_000, 30_000];

const MODELS = [
  { id: 'chat', kind: 'chat', seats: 4 },
  { id: 'decide', kind: 'decision' },
  { id: 'embed', kind: 'embedding', contextPerSeat: 64 },
  { id: 'cuttable', kind: 'embedding', contextPerSeat: 64, minDimensions: 2 },
  { id: 'rank', kind: 'rerank', contextPerSeat: 64 },
] as const;

interface Vectors {
  readonly object: string;
  readonly data: readonly { readonly object: string; readonly index: number; readonly embedding: number[] | string }[];
  readonly model: string;
  readonly truncated?: readonly number[];
  readonly usage: { readonly prompt_tokens: number; readonly total_tokens: number };
}

interface Ranking {
  readonly score_type: string;
  readonly results: readonly {
    readonly index: number;
    readonly relevance_score: number;
    readonly document?: { readonly text: string };
  }[];
  readonly truncated?: readonly number[];
  readonly usage: { readonly prompt_tokens: number };
  readonly meta: unknown;
}

/** `only`: the models that it has; each is an engine and takes a part of a prompt host's start. */
async function start(t: Test, contract = 'strict', usd = '1000', only?: string): Promise<InProcess> {
  const models = MODELS.filter(({ id }) => only === undefined || id === only);
  return await startPriced(t, usd, { models, config: { contract } });
}

t.test('POST /v1/embeddings, beside all other models', async (t) => {
  const sidecar = await start(t);
  const ask = async (body: object): Promise<Vectors> => {
    const response = await sidecar.post(EMBEDDINGS, { model: 'embed', ...body });
    if (response.status !== 200) throw new Error(response.body);
    return JSON.parse(response.body) as Vectors;
  };

  await t.test('one text, a list, tokens, lists of tokens', async (t) => {
    const one = await ask({ input: 'the rain in the north' });
    t.match(one, { object: 'list', model: 'embed', data: [{ object: 'embedding', index: 0 }] });
    t.ok(one.usage.prompt_tokens > 1);
    t.equal(one.usage.total_tokens, one.usage.prompt_tokens);
    const list = await ask({ input: ['the rain in the north', 'a', 'the rain in the north'], user: 'u' });
    t.same(
      list.data.map(({ index }) => index),
      [0, 1, 2],
    );
    t.same(list.data[2]?.embedding, one.data[0]?.embedding);
    t.same((await ask({ input: [7, 8, 9] })).usage, { prompt_tokens: 3, total_tokens: 3 });
    t.same(
      (await ask({ input: [[7, 8, 9], [11]] })).data.map(({ embedding }) => (embedding as number[])[0]),
      [3 / 64, 1 / 64],
    );
  });

  await t.test('base64 has the same numbers', async (t) => {
    const { data } = await ask({ input: [[7, 8]], encoding_format: 'base64' });
    const bytes = Buffer.from(String(data[0]?.embedding), 'base64');
    t.same(
      [0, 4, 8, 12].map((at) => bytes.readFloatLE(at)),
      [2 / 64, 0.25, 0.25, 0.25],
    );
  });

  await t.test('dimensions: cut and made a unit again, where the model may be', async (t) => {
    const { data } = await ask({ model: 'cuttable', input: [[7, 8, 9, 10]], dimensions: 2 });
    const vector = data[0]?.embedding as number[];
    const length = Math.hypot(4 / 64, 0.25);
    t.ok(Math.abs((vector[0] ?? 0) - 4 / 64 / length) < 1e-6);
    t.equal(vector.length, 2);
    for (const [model, dimensions, says] of [
      ['embed', 2, /cannot be cut/],
      ['cuttable', 1, /from 2 to/],
      ['cuttable', 65_536, /from 2 to/],
    ] as const) {
      const refused = await sidecar.post(EMBEDDINGS, { model, input: 'a', dimensions });
      t.match(
        { status: refused.status, ...errorOf(refused) },
        { status: 400, code: 'bad_request', param: 'dimensions' },
      );
      t.match(errorOf(refused).message, says);
    }
  });

  await t.test('what is refused, and what the error names', async (t) => {
    const long = 'word '.repeat(200);
    for (const [body, param, says] of [
      [{ input: 'a', truncate_prompt_tokens: 3 }, null, /outside the contract/],
      [{}, 'input', /required|must/],
      [{ input: '' }, 'input', /must/],
      [{ input: [] }, 'input', /must/],
      [{ input: ['a', 1] }, 'input', /array of strings/],
      [{ input: ['a', [1]] }, 'input', /array of strings/],
      [{ input: ['a', ''] }, 'input[1]', /must/],
      [{ input: [[1], []] }, 'input[1]', /must/],
      [{ input: [[1], [-1]] }, 'input[1][0]', /must/],
      [{ input: Array.from({ length: 2049 }, () => 'a') }, 'input', /at most 2048/],
      [{ input: 'a', encoding_format: 'int8' }, 'encoding_format', /must/],
      [{ input: 'a', dimensions: 0 }, 'dimensions', /must/],
      [{ input: [[1], [1_000_000]] }, 'input[1]', /does not have/],
      [{ input: long }, 'input', /tokens, and this model takes inputs of at most 64/],
      [{ input: ['a', long] }, 'input[1]', /^input\[1\] has .* truncate/],
    ] as const) {
      const response = await sidecar.post(EMBEDDINGS, { model: 'embed', ...body });
      const error = errorOf(response);
      t.match(
        { status: response.status, code: error.code },
        { status: 400, code: 'bad_request' },
        JSON.stringify(body).slice(0, 60),
      );
      t.equal(error.param, param, error.message);
      t.match(error.message, says);
    }
    t.equal(lastClose(sidecar).outcome, 'done', 'nothing refused is billed');
  });

  await t.test('truncate: the end is cut off, and the answer says so', async (t) => {
    const { truncated, usage } = await ask({ input: ['a', 'word '.repeat(200)], truncate: true });
    t.same(truncated, [1]);
    t.ok(usage.prompt_tokens >= 65 && usage.prompt_tokens <= 70, String(usage.prompt_tokens));
    t.notOk('truncated' in (await ask({ input: 'a', truncate: true })));
  });

  await t.test('a request is one record, by tokens', async (t) => {
    const { usage } = await ask({ input: ['the rain', 'in the north'] });
    t.match(lastClose(sidecar), {
      route: 'embeddings',
      model: 'embed',
      outcome: 'done',
      promptTokens: usage.prompt_tokens,
      completionTokens: 0,
      price: { picodollars: String(usage.prompt_tokens * VECTOR_RATE) },
      prepaid: true,
    });
  });

  await t.test('timing, and an Idempotency-Key', async (t) => {
    const key = { 'Idempotency-Key': 'once' };
    const first = await sidecar.post(EMBEDDINGS, { model: 'embed', input: 'a' }, key);
    t.match(first.field('server-timing'), /ra-queue;dur=[\d.]+, ra-admit;dur=[\d.]+/);
    t.equal(
      errorOf(await sidecar.post(EMBEDDINGS, { model: 'embed', input: 'a' }, key)).code,
      'idempotency_key_reused',
    );
  });

  await t.test('a long list has parts, and its answer is in order and whole', async (t) => {
    const inputs = Array.from({ length: 2048 }, (_, i) => [7, ...Array.from({ length: i % 40 }, () => 8)]);
    for (const encoding_format of ['float', 'base64']) {
      const response = await sidecar.post(EMBEDDINGS, { model: 'embed', input: inputs, encoding_format });
      const { data, usage } = JSON.parse(response.body) as Vectors;
      t.same(
        data.map(({ index }) => index),
        inputs.map((_, i) => i),
      );
      t.equal(usage.prompt_tokens, inputs.flat().length);
    }
    t.equal(lastClose(sidecar).promptTokens, inputs.flat().length);
  });

  await t.test('an engine that fails: 502, and only what it began is billed', async (t) => {
    const failing = [...Array.from({ length: 1100 }, () => [7, 8, 8, 8]), [STUB_JOB.fail]];
    const response = await sidecar.post(EMBEDDINGS, { model: 'embed', input: failing });
    t.equal(response.status, 502);
    t.match(lastClose(sidecar), { outcome: 'failed', promptTokens: failing.flat().length });
    const early = await sidecar.post(EMBEDDINGS, { model: 'embed', input: [[STUB_JOB.fail], ...failing] });
    t.equal(early.status, 502);
    t.ok(lastClose(sidecar).promptTokens <= 4096, 'the parts that no engine had are not');
  });

  await t.test('the first part of a list is as long as the time that those before it took lets it be', async (t) => {
    const some = (first: number): number[][] => [[first], ...Array.from({ length: 200 }, () => [7, 8, 8, 8])];
    t.equal((await ask({ input: some(STUB_JOB.paced) })).usage.prompt_tokens, 801);
    t.equal((await sidecar.post(EMBEDDINGS, { model: 'embed', input: some(STUB_JOB.fail) })).status, 502);
    t.ok(lastClose(sidecar).promptTokens <= 512, `${lastClose(sidecar).promptTokens} tokens`);
    // Eight of them are less than the least part that is measured in any case, and nine are too many for it.
    const long = Array.from({ length: 9 }, () => Array.from({ length: 60 }, () => 7));
    await eventually('parts that it cut short make it longer again', async () => {
      await ask({ input: long });
      await sidecar.post(EMBEDDINGS, { model: 'embed', input: some(STUB_JOB.fail) });
      return lastClose(sidecar).promptTokens > 512;
    });
  });

  await t.test('a caller who leaves gives its seat back between two inputs', async (t) => {
    const left = await sidecar.begin(EMBEDDINGS, { model: 'embed', input: [[7], [STUB_JOB.hold]] });
    await sidecar.until('ra_sidecar_seats_busy{model="embed"}', 1);
    left.close();
    await sidecar.until('ra_sidecar_seats_busy{model="embed"}', 0);
    await sidecar.seen('request', ({ route, status }) => route === 'embeddings' && status === 499);
    t.match(lastClose(sidecar), { outcome: 'cancelled', promptTokens: 2 });
  });

  await t.test('each model on its own routes, by the key’s entitlements', async (t) => {
    const bodies = {
      [EMBEDDINGS]: (model: string) => ({ model, input: 'a' }),
      [RERANK]: (model: string) => ({ model, query: 'a', documents: ['b'] }),
      '/v1/chat/completions': (model: string) => chatBody(model, 'echo'),
      '/v1/decisions': (model: string) => decisionBody(model),
    } as const;
    const own = { chat: '/v1/chat/completions', decide: '/v1/decisions', embed: EMBEDDINGS, rank: RERANK };
    for (const [model, route] of Object.entries(own)) {
      for (const [path, body] of Object.entries(bodies)) {
        const response = await sidecar.post(path, body(model));
        if (path === route) t.equal(response.status, 200, `${model} on ${path}`);
        else {
          t.match(
            { status: response.status, ...errorOf(response) },
            { status: 400, code: 'unsupported_endpoint', param: 'model' },
          );
          t.ok(errorOf(response).message.includes(route), `${model} on ${path}: ${errorOf(response).message}`);
        }
      }
    }
    const listed = async (headers: Readonly<Record<string, string>>): Promise<string[]> => {
      const { body } = await sidecar.ask('GET', '/v1/models', headers);
      return (JSON.parse(body) as { data: { id: string }[] }).data.map(({ id }) => id);
    };
    t.same(await listed({ Authorization: 'Bearer good' }), ['chat', 'embed', 'cuttable', 'rank'], 'no decision model');
    sidecar.identity.answers.set('Bearer vectors', { ...ACME, routes: new Set(['embeddings']) });
    const vectors = { Authorization: 'Bearer vectors' };
    t.same(await listed(vectors), ['embed', 'cuttable']);
    t.equal((await sidecar.post(EMBEDDINGS, bodies[EMBEDDINGS]('embed'), vectors)).status, 200);
    const denied = await sidecar.post(RERANK, bodies[RERANK]('rank'), vectors);
    t.match({ status: denied.status, ...errorOf(denied) }, { status: 403, code: 'model_not_entitled' });
  });
});

t.test('POST /v1/rerank', async (t) => {
  const sidecar = await start(t, 'compatible', '1000', 'rank');
  const ask = async (body: object): Promise<Ranking> => {
    const response = await sidecar.post(RERANK, { model: 'rank', query: 'rain', ...body });
    if (response.status !== 200) throw new Error(response.body);
    return JSON.parse(response.body) as Ranking;
  };
  const documents = ['a', 'the rain in the north and the south', { text: 'the rain' }];

  await t.test('best first; of equals the first', async (t) => {
    const { results, score_type: scale, usage, meta } = await ask({ documents: [...documents, 'a'] });
    t.equal(scale, 'logit');
    t.same(meta, { tokens: { input_tokens: usage.prompt_tokens } }, 'as Cohere has it');
    t.same(
      results.map(({ index }) => index),
      [1, 2, 0, 3],
    );
    t.notOk(results.some((result) => 'document' in result));
    t.match(lastClose(sidecar), {
      route: 'rerank',
      promptTokens: usage.prompt_tokens,
      price: { picodollars: String(usage.prompt_tokens * SCORE_RATE) },
    });
  });

  await t.test('top_n and return_documents', async (t) => {
    const { results } = await ask({ documents, top_n: 2, return_documents: true });
    t.match(results, [
      { index: 1, document: { text: 'the rain in the north and the south' } },
      { index: 2, document: { text: 'the rain' } },
    ]);
    t.equal(results.length, 2);
    t.equal((await ask({ documents, top_n: 100 })).results.length, 3);
  });

  await t.test('what is refused', async (t) => {
    const long = 'word '.repeat(200);
    for (const [body, param] of [
      [{ documents: [] }, 'documents'],
      [{ documents: ['a', 1] }, 'documents[1]'],
      [{ documents: ['a', { text: 'b', title: 'c' }] }, 'documents[1]'],
      [{ documents, top_n: 0 }, 'top_n'],
      [{ documents, query: '' }, 'query'],
      [{ documents: ['a', long] }, 'documents[1]'],
      [{ documents, query: long, truncate: true }, 'documents[0]'],
    ] as const) {
      const response = await sidecar.post(RERANK, { model: 'rank', query: 'rain', ...body });
      t.match({ status: response.status, ...errorOf(response) }, { status: 400, code: 'bad_request', param });
    }
    t.same((await ask({ documents: ['a', long], truncate: true })).truncated, [1]);
  });
});

t.test('2,048 vectors of 4,096 numbers', async (t) => {
  const MIB = 2 ** 20;
  const sidecar = await startPriced(t, '1000', {
    models: [{ id: 'embed', kind: 'embedding', contextPerSeat: 64, width: 4096 }],
    config: { stream: { totalBufferedBytes: 16 * MIB } },
  });
  const busy = 'ra_sidecar_seats_busy{model="embed"}';
  const buffered = 'ra_sidecar_stream_buffered_bytes';
  /** Their text has 45 MB. */
  const inputs = Array.from({ length: 2048 }, () => [7, 8]);

  /** A list whose reader has stopped, between two parts. */
  const unread = async (): Promise<Socket> => {
    const { socket } = await sidecar.begin(EMBEDDINGS, { model: 'embed', input: inputs, encoding_format: 'base64' });
    socket.removeAllListeners('data');
    socket.pause();
    await eventually(
      'a part waits and nothing is computed',
      async () => (await sidecar.metric(buffered)) > 0 && (await sidecar.metric(busy)) === 0,
    );
    return socket;
  };
  /** Reads all of it, and returns its end. */
  const read = async (socket: Socket): Promise<string> => {
    let end = '';
    socket.on('data', (bytes: Buffer) => (end = (end + bytes.subarray(-200).toString('latin1')).slice(-200)));
    socket.resume();
    await eventually('it is read, all of it', () => end.endsWith('\r\n0\r\n\r\n'));
    return end;
  };

  await t.test('a slow reader: one part waits in memory, and the next one for the reader', async (t) => {
    const socket = await unread();
    const waits = await sidecar.metric(buffered);
    t.ok(waits < 4 * MIB, `${waits} bytes`);
    // What runs ends as a chat's reply would; what begins is refused.
    sidecar.spool.health = { ok: false, why: 'write' };
    const refused = await sidecar.post(EMBEDDINGS, { model: 'embed', input: 'a' });
    t.match({ status: refused.status, ...errorOf(refused) }, { status: 503, code: 'spool_unhealthy' });
    const end = await read(socket);
    t.match(end, /"usage":\{"prompt_tokens":4096,/);
    t.ok(socket.bytesRead > 40 * MIB);
    t.equal(await sidecar.metric('ra_sidecar_readers_cut_total{reason="total"}'), 0);
    sidecar.spool.health = { ok: true };
    t.match(lastClose(sidecar), { outcome: 'done', promptTokens: 4096 });
  });

  /** Other weights of the model: the stub that they are makes vectors of the same width. `reader`: keeps its connection meanwhile. */
  const reload = async (file: string, reader: Socket): Promise<void> => {
    // uWS closes a connection whose caller has read nothing for 10 s.
    const sips = setInterval(() => {
      const most = reader.bytesRead + MIB;
      const pause = (): void => {
        if (reader.bytesRead >= most) reader.pause().off('data', pause);
      };
      reader.on('data', pause).resume();
    }, 3000);
    const at = join(sidecar.dir, randomUUID());
    mkdirSync(at);
    const path = join(at, JSON.stringify({ width: 4096 }));
    symlinkSync(file, path);
    const reloaded = await fetch(`http://127.0.0.1:${sidecar.app.operatorsPort}/models/reload`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'embed', file: path }),
    });
    t.match(await reloaded.json(), { replicas: 1, file: path });
    clearInterval(sips);
  };
  const pids = (): number[] =>
    sidecar.lines.filter(({ event }) => event === 'engine forked').map(({ pid }) => Number(pid));

  await t.test(
    'weights that are replaced while its answer is sent: the rest is of those that it began with',
    async (t) => {
      const socket = await unread();
      await reload(await testModel(), socket);
      const next = await sidecar.post(EMBEDDINGS, { model: 'embed', input: inputs.slice(0, 2) });
      t.equal(next.status, 200, 'others have the new ones');
      const end = await read(socket);
      t.match(end, /"usage":\{"prompt_tokens":4096,/);
      t.match(lastClose(sidecar), { outcome: 'done', promptTokens: 4096 });
      const [first = NaN] = pids();
      await eventually('the replaced process ends', () => !isRunning(first));
    },
  );

  await t.test('where the process that began it is lost, no vector of other weights follows: it is cut', async (t) => {
    const socket = await unread();
    const closed = once(socket, 'end');
    const [, second = NaN] = pids();
    await reload(await embeddedTestModel(), socket);
    process.kill(second, 'SIGKILL');
    await eventually('it is lost', () => !isRunning(second));
    socket.resume();
    await closed;
    await eventually('it is closed', () => lastClose(sidecar).outcome === 'failed');
    const { promptTokens, price } = lastClose(sidecar);
    t.ok(promptTokens < 4096, String(promptTokens));
    t.equal(price?.picodollars, String(promptTokens * VECTOR_RATE));
  });

  await t.test('what is made is sent: its first vectors come while the engine computes the last ones', async (t) => {
    const body = { model: 'embed', input: [...inputs.slice(0, 200), [STUB_JOB.hold]], encoding_format: 'base64' };
    sidecar.identity.answers.set('Bearer limited', { ...ACME, keyId: 'limited', tokensPerDay: 1000 });
    const connection = await sidecar.begin(EMBEDDINGS, body, { Authorization: 'Bearer limited' });
    await connection.until('ra-queue;dur=');
    await connection.until('x-ratelimit-remaining-tokens: 599\r\n');
    await connection.until('"index":199');
    t.equal(await sidecar.metric(busy), 1);
    connection.close();
    await sidecar.until(busy, 0);
    await sidecar.seen('request', ({ status }) => status === 200);
    t.match(lastClose(sidecar), {
      outcome: 'cancelled',
      promptTokens: 401,
      price: { picodollars: `${401 * VECTOR_RATE}` },
    });
  });

  await t.test('one that fails midway: the connection is closed, and what was sent is billed', async (t) => {
    const body = {
      model: 'embed',
      input: [...inputs.slice(0, 200), [STUB_JOB.fail], ...inputs.slice(201)],
      encoding_format: 'base64',
    };
    const connection = await sidecar.begin(EMBEDDINGS, body);
    const closed = once(connection.socket, 'end');
    await connection.until('"index":199');
    await closed;
    await eventually('it is closed', () => lastClose(sidecar).outcome === 'failed');
    const { promptTokens, price } = lastClose(sidecar);
    t.ok(promptTokens > 400 && promptTokens <= 512, String(promptTokens));
    t.equal(price?.picodollars, String(promptTokens * VECTOR_RATE));
  });
});

t.test('a line of a batch whose long list fails midway is tried again, and then has its error', async (t) => {
  const sidecar = await InProcess.start(t, {
    models: [{ id: 'embed', kind: 'embedding', contextPerSeat: 64, width: 4096 }],
    config: { contract: 'compatible', batch: { store: 'memory' } },
  });
  const client = new OpenAI({ apiKey: 'good', baseURL: `http://127.0.0.1:${sidecar.port}/v1`, maxRetries: 0 });
  const body = { model: 'embed', input: [...Array.from({ length: 200 }, () => [7]), [STUB_JOB.fail]] };
  const line = JSON.stringify({ custom_id: 'a', method: 'POST', url: EMBEDDINGS, body });
  const input = await client.files.create({ file: await toFile(Buffer.from(line), 'in'), purpose: 'batch' });
  const { id } = await client.batches.create({
    input_file_id: input.id,
    endpoint: EMBEDDINGS,
    completion_window: '24h',
  });
  const batch = await ended(client, id);
  t.match(batch, { status: 'completed', request_counts: { total: 1, completed: 0, failed: 1 } });
  t.match(await answersIn(client, batch.error_file_id), [{ response: { status_code: 502 } }]);
  t.same(
    sidecar.spool.records.filter(({ kind }) => kind === 'close').map(({ outcome }) => outcome),
    ['failed', 'failed', 'failed'],
  );
});

t.test('under the compatible contract quotas count the tokens of inputs', async (t) => {
  const sidecar = await start(t, 'compatible', '1000', 'embed');
  for (const [path, body] of [
    ['/v1/responses', { model: 'embed', input: 'a' }],
    ['/v1/messages', { model: 'embed', max_tokens: 1, messages: [{ role: 'user', content: 'a' }] }],
  ] as const) {
    const { status, body: text } = await sidecar.post(path, body);
    t.equal(status, 400, path);
    t.match(text, '/v1/embeddings', 'the error names the route');
  }
  const limited = { Authorization: 'Bearer limited' };
  sidecar.identity.answers.set(limited.Authorization, { ...ACME, keyId: 'limited', tokensPerDay: 100 });
  const ask = (...lengths: number[]): Promise<RawResponse> =>
    sidecar.post(
      EMBEDDINGS,
      { model: 'embed', input: lengths.map((length) => Array.from({ length }, () => 7)) },
      limited,
    );
  const refused = await ask(60, 41);
  t.match({ status: refused.status, ...errorOf(refused) }, { status: 400, code: 'bad_request' }, 'more than the whole');
  const first = await ask(60, 30);
  t.match([first.status, first.field('x-ratelimit-remaining-tokens')], [200, '10']);
  const late = await ask(11);
  t.match({ status: late.status, ...errorOf(late) }, { status: 429, code: 'quota_exceeded' });
  const left = await sidecar.begin(EMBEDDINGS, { model: 'embed', input: [[STUB_JOB.hold, 7, 7]] }, limited);
  await sidecar.until('ra_sidecar_seats_busy{model="embed"}', 1);
  t.equal((await ask(8)).status, 429, 'what runs is reserved');
  // Its answer comes after what the engine says of the start of the one before.
  t.equal((await sidecar.post(EMBEDDINGS, { model: 'embed', input: [[7]] })).status, 200);
  left.close();
  await sidecar.until('ra_sidecar_seats_busy{model="embed"}', 0);
  const last = await ask(7);
  t.match([last.status, last.field('x-ratelimit-remaining-tokens')], [200, '0'], 'what was begun stays counted');
});

t.test('credit is reserved by tokens', async (t) => {
  const sidecar = await start(t, 'strict', '0.00001', 'embed');
  // 500 tokens cost as much as there is.
  const inputs = (count: number): object => ({
    model: 'embed',
    input: Array.from({ length: count }, () => Array.from({ length: 50 }, () => 7)),
  });
  const refused = await sidecar.post(EMBEDDINGS, inputs(11));
  t.match({ status: refused.status, ...errorOf(refused) }, { status: 402, code: 'insufficient_credit' });
  t.equal((await sidecar.post(EMBEDDINGS, inputs(10))).status, 200);
  t.equal((await sidecar.post(EMBEDDINGS, { model: 'embed', input: [[7]] })).status, 402);
});
