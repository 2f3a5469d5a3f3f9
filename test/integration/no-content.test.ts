/**
 * Zero retention from outside: requests with a canary in every place, through success and every failure that HTTP can
 * cause, at the log’s most verbose level. No part of them or of the replies may leave other than in the reply. See also
 * no-content-access (gateways and authorizers), no-content-usage (spool, sink, recovery), no-content-crash.
 */
import { join } from 'node:path';
import t from 'tap';
import { writeKeyFile } from '../../sidecar/access/key-file.js';
import * as canaries from '../support/canaries.js';
import { canary, chatBody, decisionBody, MARK, systemOneBody } from '../support/canaries.js';
import { NOTHING_LEARNED, REFUSES_COLD } from '../support/config-parts.js';
import { counted } from '../support/counted.js';
import { makeKey } from '../support/keys.js';
import { LeakSearch } from '../support/leak-search.js';
import { embeddedTestModel } from '../support/models.js';
import { OpenStream } from '../support/open-stream.js';
import { OtlpReceiver } from '../support/otlp-receiver.js';
import { childrenOf, eventually } from '../support/processes.js';
import { recursingModel } from '../support/prompt-models.js';
import { RawConnection } from '../support/raw-http.js';
import { RetentionWatch } from '../support/retention-watch.js';
import { CHAT, DECIDE, Sidecar } from '../support/sidecar.js';
import { ENGINE, ProcessGate } from '../support/process-gate.js';

const CHATS = '/chat/completions';
/** A chat model whose vocabulary has texts that end the prompt host, with a context that takes long to prefill. */
const LONG = 'long';

/** Not `development`, in which a key is created and printed. */
const ENVIRONMENT = 'staging';

const all = { entitlements: { [ENVIRONMENT]: { models: 'all' } } } as const;
const KEYS = {
  good: makeKey(all),
  expired: makeKey({ ...all, expires: '2026-02-01T00:00:00Z' }),
  revoked: makeKey({ ...all, revoked: '2026-02-01T00:00:00Z' }),
  elsewhere: makeKey(),
  frozen: makeKey({ ...all, account: 'ice' }),
};

const watch = new RetentionWatch();

t.test('content leaves only in the reply', async (t) => {
  const dataDir = t.testdir();
  const stored = Object.values(KEYS).map((key) => key.stored);
  await writeKeyFile(join(dataDir, 'keys.json'), { version: 1, accounts: { ice: { frozen: true } }, keys: stored });
  const receiver = await OtlpReceiver.start(t);
  const file = await embeddedTestModel();
  const long = { file: await recursingModel(), contextPerSeat: 100_000, prefillTokensPerStep: 32 };
  const gate = new ProcessGate(t);
  const sidecar = await Sidecar.start(t, {
    environment: gate.environment,
    config: {
      dataDir,
      environment: ENVIRONMENT,
      models: [
        { id: CHAT, kind: 'chat', file, seats: 2, contextPerSeat: 8192 },
        { id: DECIDE, kind: 'decision', file, seats: 2, contextPerSeat: 8192 },
        { id: LONG, kind: 'chat', seats: 1, gpu: false, ...long },
      ],
      log: { level: 'trace' },
      queue: { ...REFUSES_COLD, waitingPerSeat: 1 },
      development: NOTHING_LEARNED,
      stream: { keepAliveMs: 500 },
      prompts: { silenceMs: 5000 },
      engine: { hangMs: 3_600_000 },
      telemetry: { otlp: { endpoint: receiver.endpoint, metricsIntervalMs: 1000 } },
    },
  });
  sidecar.key = KEYS.good.key;
  const look = async (): Promise<void> => {
    watch.processes(sidecar.pid);
    await watch.pages(sidecar);
  };
  const chat = (more: canaries.Fields = {}, options = {}): Promise<Response> =>
    sidecar.post(CHATS, chatBody(more), options);
  const signalEngine = (signal: NodeJS.Signals): void => void process.kill(sidecar.enginePid(CHAT), signal);
  // A reward for repetition makes the model continue to the limit.
  const endless = { max_tokens: 7500, temperature: 0, frequency_penalty: -2 };

  t.test('200', async (t) => {
    const served = [
      await chat({ n: 4 }),
      await chat({ stream: true, stream_options: { include_usage: true }, n: 2 }),
      await chat({ ...canaries.toolFields(), stream: true }),
      await chat({ ...canaries.toolFields(), messages: canaries.toolMessages(), tool_choice: 'auto' }),
      await chat({ response_format: { type: 'json_object' } }),
      await chat({ tools: canaries.toolFields()['tools'], tool_choice: 'none', user: 'x'.repeat(20) }),
      await sidecar.post('/systemone', systemOneBody()),
      await fetch(`${sidecar.base}/models`, { headers: { authorization: `Bearer ${sidecar.key}` } }),
    ];
    for (const response of served) {
      t.equal(response.status, 200);
      await watch.replied(response);
    }
    const decided = await watch.replied(await sidecar.post('/decisions', decisionBody()));
    t.match(decided, MARK, 'a decision is answered with the ids of the request');
    t.ok(watch.phrases.length > 5, `${watch.phrases.length} phrases of replies to search for`);
  });

  t.test('refusals caused by a request alone: 400, 401, 403, 404, 405, 413, 415, 422', async (t) => {
    for (const { status, path, body, headers } of [...canaries.wrongBodies(), ...canaries.otherRefusals()]) {
      const response = await sidecar.post(path, body, { ...(headers && { headers }) });
      const { status: got, code } = await watch.refused(response);
      t.equal(got, status, `${path} ${code}`);
    }
    for (const [name, code] of [
      ['expired', 'expired_api_key'],
      ['revoked', 'revoked_api_key'],
      ['elsewhere', 'model_not_entitled'],
      ['frozen', 'account_frozen'],
    ] as const) {
      t.equal((await watch.refused(await chat({}, { key: KEYS[name].key }))).code, code);
    }
    t.equal((await watch.refused(await chat({}, { key: null }))).status, 401, 'no key');

    const raw = await RawConnection.open(sidecar.port);
    t.teardown(() => raw.close());
    raw.send(`GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: ${canary()}\r\nAuthorization: ${canary()}\r\n\r\n`);
    const twice = await raw.response();
    t.equal(twice.status, 400, 'two keys');
    watch.saw('errors', twice.raw);
  });

  t.test('409 and 422: a repeated request', async (t) => {
    const headers = { 'idempotency-key': `"${canary()}"` };
    const body = chatBody();
    await watch.replied(await sidecar.post(CHATS, body, { headers }));
    for (const [sent, status] of [
      [body, 409],
      [chatBody(), 422],
    ] as const) {
      const again = await watch.refused(await sidecar.post(CHATS, sent, { headers }));
      t.same(again, { status, code: 'idempotency_key_reused' });
    }
    const malformed = { 'idempotency-key': `${canary()} ${canary()}` };
    t.equal((await watch.refused(await chat({}, { headers: malformed }))).status, 400);
  });

  t.test('429 and 499: a full queue, and callers that leave it', async (t) => {
    signalEngine('SIGSTOP');
    const leaving = new AbortController();
    const waiting = (['seats_busy', 'waiting_requests'] as const).flatMap((metric) =>
      [1, 2].map((count) => ({ metric, count })),
    );
    const left = [];
    for (const { metric, count } of waiting) {
      left.push(chat({}, { signal: leaving.signal, headers: { 'idempotency-key': canary() } }));
      await counted(sidecar, metric, count);
    }
    t.same(await watch.refused(await chat()), { status: 429, code: 'capacity_exceeded' });
    await look();
    leaving.abort();
    for (const { status } of await Promise.allSettled(left)) t.equal(status, 'rejected');
    await sidecar.logged('request', 4, (line) => line['status'] === 499);
    signalEngine('SIGCONT');
  });

  t.test(
    '499: a caller that disconnects while its prompt is read, and one that disconnects from a stream',
    async (t) => {
      const content = `What is it? ${canary()} `.repeat(1500);
      const long = await OpenStream.begin(
        sidecar,
        chatBody({ model: LONG, messages: [{ role: 'user', content }] }),
        ': keep-alive',
      );
      const read = (): Promise<number> => sidecar.metric('ra_sidecar_kv_tokens', { model: LONG, use: 'running' });
      await eventually('the engine evaluates the prompt', async () => (await read()) > 0);
      long.leave();
      await counted(sidecar, 'cancels_total', 1, { model: LONG, phase: 'prefilling' });

      const reader = (await chat({ ...endless, stream: true })).body?.getReader();
      const begun = await firstToken(reader);
      t.notMatch(begun, '[DONE]', 'the reply goes on');
      watch.streamed(begun);
      await reader?.cancel();
      await counted(sidecar, 'cancels_total', 1, { phase: 'decoding' });
    },
  );

  t.test('500: a prompt ends the prompt host, and another hangs in it', async (t) => {
    const deadly = [{ role: 'user', content: `${canary()} ${'a'.repeat(2_000_000)}` }];
    t.same(await watch.refused(await chat({ model: LONG, messages: deadly })), { status: 500, code: 'internal' });
    await watch.replied(await chat());
    const host = childrenOf(sidecar.pid).find(({ command }) => command.includes('prompts/host.js short'));
    process.kill(Number(host?.pid), 'SIGSTOP');
    t.same(await watch.refused(await chat()), { status: 500, code: 'internal' });
    await watch.replied(await chat());
  });

  t.test('502 and 503: the engine is killed, and its model loads again', async (t) => {
    const whole = chat(endless);
    await counted(sidecar, 'seats_busy', 1);
    const stream = await chat({ ...endless, stream: true });
    const [start, all] = stream.body?.tee() ?? [];
    // Then the reply that was asked for before has begun too, and is not sent to the next engine.
    await firstToken(start?.getReader());
    // The next one is stopped, however long the answers take to be read.
    gate.close(ENGINE);
    signalEngine('SIGABRT');
    const { goOn } = await gate.stopped();
    const frames = await watch.replied(new Response(all, stream));
    t.match(frames, /"code":"bad_gateway"/);
    t.same(await watch.refused(await whole), { status: 502, code: 'bad_gateway' });
    t.same(await watch.refused(await chat()), { status: 503, code: 'cold' });
    await look();
    goOn();
    await sidecar.logged('engine ready', 2, (line) => line['model'] === CHAT);
  });

  t.test('503: the sidecar drains', async (t) => {
    signalEngine('SIGSTOP');
    const last = chat();
    await counted(sidecar, 'seats_busy', 1);
    sidecar.child.kill('SIGTERM');
    await sidecar.logged('draining');
    t.same(await watch.refused(await chat()), { status: 503, code: 'draining' });
    await look();
    signalEngine('SIGCONT');
    await watch.replied(await last);
    t.same(await sidecar.exited(), { code: 0, signal: null });
  });

  t.test('no canary is found anywhere', async (t) => {
    const logged = new Set(sidecar.lines.filter(({ event }) => event === 'request').map((line) => line['status']));
    // 404 and 405 are refused before a request is logged.
    t.same([...logged].sort(), [200, 400, 401, 403, 409, 413, 415, 422, 429, 499, 500, 502, 503]);

    watch.output(sidecar);
    await watch.files(dataDir);
    watch.saw('otlp', ...receiver.raw);
    const traced = receiver.spans.filter(({ kind }) => kind === 2);
    t.equal(
      traced.length,
      sidecar.lines.filter(({ event }) => event === 'request').length,
      'each request has its trace',
    );
    t.same(watch.places, ['stdout', 'stderr', 'pages', 'errors', 'heads', 'files', 'processes', 'otlp']);
    const { phrases } = watch;
    t.ok(phrases.length > 10, `${phrases.length} pieces of replies to search for`);
    t.same(watch.leaks(new LeakSearch([MARK, ...Object.values(KEYS).map(({ key }) => key)], phrases)), []);
  });
});

/** What a stream has sent once it has sent a token; on a busy machine comments may come before it. Throws if it ends before. */
async function firstToken(reader: ReadableStreamDefaultReader<Uint8Array> | undefined): Promise<string> {
  let begun = '';
  while (!begun.includes('data: ')) {
    const read = await reader?.read();
    if (read?.value === undefined) throw new Error(`no token came: ${begun}`);
    begun += Buffer.from(read.value).toString();
  }
  return begun;
}
