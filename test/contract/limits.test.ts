/** Limits of one key over HTTP: requests in flight, requests in a minute, and what counts. */
import t, { type Test } from 'tap';
import type { KeyLimits } from '../../sidecar/access/limits.js';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { errorOf, holdError } from '../support/error-answer.js';
import { ACME, chatBody, decisionBody, InProcess, JSON_HEADERS, systemOneBody } from '../support/in-process.js';
import type { RawConnection, RawResponse } from '../support/raw-http.js';

const CHAT = '/v1/chat/completions';
const DECISIONS = '/v1/decisions';
const SYSTEMONE = '/v1/systemone';

/** Counts callers that disconnected during their reply. */
const CANCELS = 'ra_sidecar_cancels_total{model="chat",phase="decoding"}';

const LIMITED = { status: 429, type: 'rate_limit_error', code: 'user_rate_limited', retry: true, param: null };

async function start(t: Test, config: Readonly<Record<string, unknown>> = {}): Promise<InProcess> {
  return InProcess.start(t, {
    models: [
      { id: 'chat', kind: 'chat', seats: 4 },
      { id: 'narrow', kind: 'chat', seats: 1 },
      { id: 'decide', kind: 'decision' },
    ],
    config: { queue: { ...PATIENT_QUEUE, waitingPerSeat: 40 }, ...config },
  });
}

/** The headers of a new key with these limits. */
function key(sidecar: InProcess, name: string, limits: KeyLimits, more: object = {}): Record<string, string> {
  const Authorization = `Bearer ${name}`;
  sidecar.identity.answers.set(Authorization, { ...ACME, keyId: name, limits, ...more });
  return { Authorization };
}

function limited(t: Test, name: string, response: RawResponse, says: RegExp): number {
  holdError(t, name, response, LIMITED);
  t.match(errorOf(response).message, says, name);
  return Number(response.field('retry-after-ms'));
}

/** A request whose body is incomplete: it is in flight for as long as a test needs. */
async function unfinished(sidecar: InProcess, path: string, body: object): Promise<() => Promise<RawResponse>> {
  const text = JSON.stringify(body);
  const connection: RawConnection = await sidecar.connect();
  const headers = { ...JSON_HEADERS, 'Content-Length': String(text.length) };
  connection.request('POST', path, headers, text.slice(0, 10));
  return () => connection.send(text.slice(10)).response();
}

/** The sidecar of the tests without their own configuration. Each uses its own keys and leaves the seats free. */
const common = await start(t);

t.test(
  '32 decisions of one key in flight, on both routes together; the 33rd is refused before its body is read',
  async (t) => {
    const sidecar = common;
    const finish = await Promise.all(
      Array.from({ length: 32 }, (_, i) =>
        i % 2 === 0
          ? unfinished(sidecar, DECISIONS, decisionBody('decide'))
          : unfinished(sidecar, SYSTEMONE, systemOneBody('decide')),
      ),
    );
    // Requests of different connections are not ordered: repeat until one is refused.
    const refused = async (): Promise<RawResponse> => {
      for (;;) {
        const answer = await sidecar.post(DECISIONS, '');
        if (answer.status === 429) return answer;
      }
    };
    const wait = limited(t, 'the 33rd', await refused(), /in flight/);
    t.equal(wait, 1000);
    limited(t, 'on the other route', await sidecar.post(SYSTEMONE, systemOneBody('decide')), /in flight/);
    const wrongType = { 'Content-Type': 'text/plain' };
    limited(t, 'before the content type', await sidecar.post(DECISIONS, '', wrongType), /in flight/);
    t.equal((await sidecar.post(CHAT, chatBody('chat', 'echo'))).status, 200, 'chat is counted separately');
    t.equal((await sidecar.ask('GET', '/v1/models', JSON_HEADERS)).status, 200);
    const other = key(sidecar, 'other', {});
    t.equal((await sidecar.post(DECISIONS, decisionBody('decide'), other)).status, 200, 'and so is another key');

    t.equal((await finish[0]?.())?.status, 200);
    t.equal((await sidecar.post(DECISIONS, decisionBody('decide'))).status, 200, 'one ended, so one is admitted');
    const answers = await Promise.all(finish.slice(1).map((end) => end()));
    t.strictSame(new Set(answers.map(({ status }) => status)), new Set([200]), 'all admitted requests are answered');
  },
);

t.test('a key over its limits is refused from the request’s head, whatever body follows', async (t) => {
  const sidecar = common;
  const once = { inFlight: 0, perMinute: 1 };
  const keys = {
    'in a minute': key(sidecar, 'minute', { chat: once, decisions: once }),
    'a day’s tokens': key(sidecar, 'day', {}, { tokensPerDay: 10_000 }),
  };
  for (const [path, body] of [
    [CHAT, chatBody('chat', 'echo')],
    [DECISIONS, decisionBody('decide')],
  ] as const) {
    // No byte of a body is sent: the answer cannot have waited for one.
    const refused = async (headers: Readonly<Record<string, string>>): Promise<RawResponse> => {
      const caller = await sidecar.connect();
      return caller.request('POST', path, { ...JSON_HEADERS, ...headers, 'Content-Length': '1000000' }).response();
    };
    await sidecar.post(path, body, keys['in a minute']);
    limited(t, `in a minute at ${path}`, await refused(keys['in a minute']), /60 seconds/);
    key(sidecar, 'day', {}, { tokensPerDay: 10_000 });
    await sidecar.post(path, body, keys['a day’s tokens']);
    key(sidecar, 'day', {}, { tokensPerDay: 1 });
    holdError(t, `a day’s tokens at ${path}`, await refused(keys['a day’s tokens']), {
      ...LIMITED,
      type: 'quota',
      code: 'quota_exceeded',
    });
    const full = key(sidecar, `full ${path}`, { chat: { inFlight: 1 }, decisions: { inFlight: 1 } });
    const held = await sidecar.connect();
    held.request('POST', path, { ...JSON_HEADERS, ...full, 'Content-Length': '1000000' });
    await sidecar.until('http_server_active_requests{http_request_method="POST",url_scheme="http"}', 1);
    limited(t, `in flight at ${path}`, await refused(full), /in flight/);
    held.close();
    await sidecar.until('http_server_active_requests{http_request_method="POST",url_scheme="http"}', 0);
  }
});

t.test('a refused request does not count, whatever refused it', async (t) => {
  const sidecar = await start(t, { bodies: { chatBytes: 100_000 }, queue: { waitingPerSeat: 0 } });
  const two = key(sidecar, 'two', { chat: { perMinute: 2 }, decisions: { perMinute: 1 } });
  const post = (path: string, body: unknown, headers = {}): Promise<RawResponse> =>
    sidecar.post(path, body, { ...two, ...headers });
  const running = await sidecar.begin(CHAT, chatBody('narrow', 'begun', { stream: true }));
  await running.until('begun');
  const broken = {
    role: 'assistant',
    tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{' } }],
  };
  const refusals: readonly (readonly [status: number, () => Promise<RawResponse>])[] = [
    [415, () => post(CHAT, {}, { 'Content-Type': 'text/plain' })],
    [413, () => post(CHAT, chatBody('chat', 'echo', { user: 'u'.repeat(100_000) }))],
    [400, () => post(CHAT, chatBody('chat', 'echo', { x: 1 }))],
    [403, () => post(CHAT, chatBody('none', 'echo'))],
    [400, () => post(CHAT, chatBody('decide', 'echo'))],
    [429, () => post(CHAT, chatBody('narrow', 'echo'))],
    [422, () => post(CHAT, chatBody('chat', 'echo', { messages: [{ role: 'user', content: 'Hi.' }, broken] }))],
    [400, () => post(CHAT, chatBody('chat', 'echo', { max_tokens: 9999 }))],
    [400, () => post(DECISIONS, decisionBody('chat'))],
    [404, () => post('/v1/nothing', {})],
  ];
  for (let round = 0; round < 2; round++) {
    for (const [status, ask] of refusals) t.equal((await ask()).status, status);
  }
  for (let i = 0; i < 2; i++) t.equal((await post(CHAT, chatBody('chat', 'echo'))).status, 200, 'both are admitted');
  limited(t, 'and no third', await post(CHAT, chatBody('chat', 'echo')), /60 seconds/);
  t.equal((await post(DECISIONS, decisionBody('decide'))).status, 200);
});

t.test('a request that ran counts, however it ended; one that was cancelled while it waited does not', async (t) => {
  const sidecar = common;
  const minute = { chat: { perMinute: 1 } };
  const failed = key(sidecar, 'failed', minute);
  t.equal((await sidecar.post(CHAT, chatBody('chat', 'fail'), failed)).status, 502);
  limited(t, 'the engine failed', await sidecar.post(CHAT, chatBody('chat', 'echo'), failed), /60 seconds/);

  const left = key(sidecar, 'left', minute);
  const open = await sidecar.begin(CHAT, chatBody('chat', 'begun', { stream: true }), left);
  await open.until('begun');
  const cancels = await sidecar.metric(CANCELS);
  open.close();
  await sidecar.until(CANCELS, cancels + 1);
  limited(t, 'the caller disconnected', await sidecar.post(CHAT, chatBody('chat', 'echo'), left), /60 seconds/);

  const running = await sidecar.begin(CHAT, chatBody('narrow', 'begun', { stream: true }));
  await running.until('begun');
  const waited = key(sidecar, 'waited', minute);
  const waiting = await sidecar.begin(CHAT, chatBody('narrow', 'echo'), waited);
  await sidecar.until('ra_sidecar_waiting_requests{model="narrow",class="standard"}', 1);
  waiting.close();
  await sidecar.until('ra_sidecar_cancels_total{model="narrow",phase="waiting"}', 1);
  t.equal((await sidecar.post(CHAT, chatBody('chat', 'echo'), waited)).status, 200);
  running.close();
});

t.test('the model list and chat have limits where they are configured', async (t) => {
  const sidecar = await start(t, { limits: { models: { perMinute: 2 }, chat: { perMinute: 1 } } });
  const list = (): Promise<RawResponse> => sidecar.ask('GET', '/v1/models', JSON_HEADERS);
  t.equal((await list()).status, 200);
  t.equal((await list()).status, 200);
  limited(t, 'a third list', await list(), /60 seconds/);
  t.equal((await sidecar.post(CHAT, chatBody('chat', 'echo'))).status, 200);
  limited(t, 'a second chat', await sidecar.post(CHAT, chatBody('chat', 'echo')), /60 seconds/);
  const own = key(sidecar, 'own', { chat: { perMinute: 0 }, models: { perMinute: 0 } });
  for (let i = 0; i < 4; i++) t.equal((await sidecar.ask('GET', '/v1/models', own)).status, 200, 'none for this key');
});

t.test('requests of a gateway are not limited here', async (t) => {
  const limits = { decisions: { inFlight: 1, perMinute: 1 } };
  const vouched = key(common, 'vouched', limits, { vouched: true, tokensPerDay: 1 });
  for (let i = 0; i < 3; i++) {
    const answer = await common.post(DECISIONS, decisionBody('decide'), vouched);
    t.equal(answer.status, 200);
    t.notMatch(answer.raw, /ratelimit/, 'nor told of limits');
  }
});
