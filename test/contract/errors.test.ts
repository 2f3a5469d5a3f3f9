/** Every code of the error catalogue over HTTP; test/sidecar/domain/errors.test.ts has the catalogue as a table. */
import t, { type Test } from 'tap';
import { CATALOGUE, type ErrorCode } from '../../sidecar/domain/errors.js';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { errorOf, holdError, type Expected } from '../support/error-answer.js';
import { chatBody, decisionBody, InProcess, JSON_HEADERS } from '../support/in-process.js';
import { SHORT_LANE } from '../support/process-gate.js';
import { childrenOf } from '../support/processes.js';
import type { RawResponse } from '../support/raw-http.js';
import { shareLanes } from '../support/shared-lanes.js';

shareLanes(t);

const CHAT = '/v1/chat/completions';
const ORIGIN = 'https://app.example';
const reached = new Set<string>();

/** Denials of identity sources other than the keys file, and of gateways. */
const DENIALS = [
  ...['invalid_api_key', 'expired_api_key', 'revoked_api_key', 'model_not_entitled', 'not_in_cohort'],
  ...['account_frozen', 'unattributed_key', 'insufficient_credit', 'user_rate_limited', 'quota_exceeded'],
  ...['proxy_retired', 'gateway_unavailable', 'control_plane_overloaded', 'credit_gate_unavailable'],
] as const satisfies readonly ErrorCode[];

function expect(code: ErrorCode, changes: Partial<Expected> = {}): Expected {
  const { status, type, retryable: retry } = CATALOGUE[code];
  reached.add(code);
  return { status, type, code, retry, ...changes };
}

t.test('errors', async (t) => {
  const sidecar = await InProcess.start(t, {
    models: [
      { id: 'chat', kind: 'chat' },
      { id: 'narrow', kind: 'chat', seats: 1 },
      { id: 'mortal', kind: 'chat' },
      { id: 'cold', kind: 'chat', cold: true },
      { id: 'decide', kind: 'decision' },
    ],
    config: {
      queue: { ...PATIENT_QUEUE, waitingPerSeat: 1 },
      bodies: { chatBytes: 2000 },
      cors: { origins: [ORIGIN] },
    },
  });
  const origin = { Origin: ORIGIN };
  const post = (path: string, body: unknown, headers = {}): Promise<RawResponse> =>
    sidecar.post(path, body, { ...origin, ...headers });
  const hold = (t: Test, name: string, response: RawResponse, expected: Expected): void => {
    holdError(t, name, response, expected);
    t.equal(response.field('access-control-allow-origin'), ORIGIN, `${name}: a browser may read it`);
  };

  await t.test('denials of an identity source', async (t) => {
    for (const code of DENIALS) {
      sidecar.identity.answers.set(`Bearer ${code}`, { kind: 'denied', code, retryAfterMs: 1500 });
      sidecar.identity.answers.set(`Bearer ${code}, in a while`, { kind: 'denied', code });
      const id = `denied-${code}`;
      const answer = await post(CHAT, chatBody('chat', 'echo'), {
        Authorization: `Bearer ${code}`,
        'X-Request-Id': id,
      });
      hold(t, code, answer, expect(code, { param: null }));
      t.equal(answer.field('x-request-id'), id, `${code}: the request’s own id`);
      t.not(errorOf(answer).message, 'The request is not allowed.', `${code}: the message says what to do`);
      const waits = CATALOGUE[code].retryable;
      t.equal(answer.field('retry-after-ms'), waits ? '1500' : undefined, `${code}: the wait that the source gave`);
      hold(t, code, await post(CHAT, {}, { Authorization: `Bearer ${code}, in a while` }), expect(code));
      const models = await sidecar.ask('GET', '/v1/models', { ...origin, Authorization: `Bearer ${code}` });
      hold(t, `${code} of /models`, models, expect(code));
    }
    const keyless = await sidecar.ask('POST', CHAT, { ...origin, 'Content-Type': 'application/json' }, '{}');
    hold(t, 'no key', keyless, expect('invalid_api_key'));
  });

  await t.test('requests that are invalid in themselves', async (t) => {
    const broken = { id: 'a', type: 'function', function: { name: 'f', arguments: '{' } };
    const messages = [
      { role: 'user', content: 'Hi.' },
      { role: 'assistant', tool_calls: [broken] },
    ];
    const at = 'messages[1].tool_calls[0].function.arguments';
    for (const [name, body, code, changes, path = CHAT] of [
      ['an unknown field', chatBody('chat', 'echo', { x: 1 }), 'bad_request'],
      ['an unknown path', {}, 'not_found', {}, '/v1/completions'],
      ['too large', chatBody('chat', 'echo', { user: 'u'.repeat(2000) }), 'payload_too_large'],
      [
        'a conversation that the template cannot express',
        chatBody('chat', 'echo', { messages }),
        'unprocessable',
        { param: at },
      ],
      ['an unknown model', chatBody('none', 'echo'), 'model_not_entitled', { param: 'model' }],
      ['chat on a decision model', chatBody('decide', 'echo'), 'unsupported_endpoint', { param: 'model' }],
      ['decisions on a chat model', decisionBody('chat'), 'unsupported_endpoint', {}, '/v1/decisions'],
    ] as const satisfies readonly (readonly [string, object, ErrorCode, Partial<Expected>?, string?])[])
      hold(t, name, await post(path, body), expect(code, changes));
    const method = await sidecar.ask('PUT', CHAT, { ...origin, ...JSON_HEADERS }, '{}');
    hold(t, 'wrong method', method, expect('bad_request', { status: 405 }));
    const type = await post(CHAT, {}, { 'Content-Type': 'text/plain' });
    hold(t, 'wrong type', type, expect('bad_request', { status: 415 }));
  });

  await t.test('Idempotency-Key', async (t) => {
    const key = { 'Idempotency-Key': 'k' };
    t.equal((await post(CHAT, chatBody('chat', 'echo'), key)).status, 200);
    const reused = 'idempotency_key_reused';
    hold(t, 'completed', await post(CHAT, chatBody('chat', 'echo'), key), expect(reused, { param: null }));
    hold(t, 'other body', await post(CHAT, chatBody('chat', 'hold'), key), expect(reused, { status: 422 }));
  });

  await t.test('capacity', async (t) => {
    hold(t, 'cold', await post(CHAT, chatBody('cold', 'echo')), expect('cold'));
    const page = await (await fetch(`http://127.0.0.1:${sidecar.app.operatorsPort}/metrics`)).text();
    t.match(page, /^gen_ai_server_request_duration_seconds_count\{.*request_model="cold".*error_type="cold"\} 1$/m);
    const running = await sidecar.begin(CHAT, chatBody('narrow', 'hold'));
    await sidecar.until('ra_sidecar_seats_busy{model="narrow"}', 1);
    const waiting = await sidecar.begin(CHAT, chatBody('narrow', 'echo'));
    await sidecar.until('ra_sidecar_waiting_requests{model="narrow",class="standard"}', 1);
    const refused = await post(CHAT, chatBody('narrow', 'echo'));
    hold(t, 'queue full', refused, expect('capacity_exceeded'));
    t.match(refused.field('server-timing'), /^authorize;dur=[\d.]+, ra-queue;dur=0, ra-admit;dur=[\d.]+$/);
    running.close();
    t.equal((await waiting.response()).status, 200);
    const left = answered('POST', CHAT, 499, 'request_cancelled');
    await sidecar.until(left, 1);
    expect('request_cancelled');
    t.match(await sidecar.seen('request', ({ status }) => status === 499), { event: 'request', model: 'narrow' });
  });

  await t.test('faults', async (t) => {
    sidecar.identity.answers.set('Bearer fault', new Error('a fault'));
    const fault = await post(CHAT, {}, { Authorization: 'Bearer fault' });
    hold(t, 'a handler that throws', fault, expect('internal'));
    t.notMatch(fault.body, /a fault/, 'the answer does not repeat the fault');
    const headers = { ...JSON_HEADERS, Authorization: 'Bearer fault' };
    for (const [method, path] of [
      ['GET', '/v1/models'],
      ['POST', '/v1/decisions'],
    ] as const) {
      t.equal((await sidecar.ask(method, path, headers, '{}')).status, 500);
      t.equal(await sidecar.metric(answered(method, path, 500, 'internal')), 1, `${path} is counted`);
    }
    sidecar.spool.failOn = 'close';
    const cut = await post(CHAT, chatBody('chat', 'echo', { stream: true }));
    t.match(cut.body, /"code":"internal"/);
    sidecar.spool.failOn = undefined;
    t.equal(await sidecar.metric('ra_sidecar_streams_running'), 0, 'a stream that ended by a fault is closed');
    t.equal(await sidecar.metric(answered('POST', CHAT, 200, 'internal')), 1);
    hold(t, 'the engine failed the job', await post(CHAT, chatBody('mortal', 'fail')), expect('bad_gateway'));
    hold(
      t,
      'the engine broke its protocol',
      await post(CHAT, chatBody('mortal', 'breach')),
      expect('upstream_contract_violation'),
    );
    sidecar.spool.health = { ok: false, why: 'write' };
    for (const [path, body] of [
      [CHAT, chatBody('chat', 'echo')],
      ['/v1/decisions', decisionBody('decide')],
    ] as const)
      hold(t, `spool, ${path}`, await post(path, body), expect('spool_unhealthy'));
    sidecar.spool.health = { ok: true };
  });

  await t.test('draining', async (t) => {
    const running = await sidecar.begin(CHAT, chatBody('chat', 'begun', { stream: true }));
    await running.until('begun');
    const drained = sidecar.app.drain();
    hold(t, 'draining', await post(CHAT, chatBody('chat', 'echo')), expect('draining'));
    running.close();
    await drained;
  });
});

/** Bounds of what is repeated on a busy machine. */
const MOST_TIMEOUT_MS = 64_000;
const MOST_TRIES = 10;

t.test('deadlines', async (t) => {
  const isClose = ({ kind }: { readonly kind: string }): boolean => kind === 'close';
  const start = (timeoutMs: number): Promise<InProcess> =>
    InProcess.start(t, {
      models: [{ id: 'chat', kind: 'chat', seats: 3 }],
      config: { request: { timeoutMs }, queue: PATIENT_QUEUE, prompts: { silenceMs: 60_000 } },
    });

  await t.test('running', async (t) => {
    // A busy machine may take longer until all have a seat and one its first token.
    const running = async (
      timeoutMs: number,
    ): Promise<{ sidecar: InProcess; answers: readonly [RawResponse, RawResponse, RawResponse] }> => {
      const sidecar = await start(timeoutMs);
      const answers = await Promise.all([
        sidecar.post(CHAT, chatBody('chat', 'hold')),
        sidecar.post(CHAT, chatBody('chat', 'hold', { stream: true })),
        sidecar.post(CHAT, chatBody('chat', 'begun', { stream: true }), { TE: 'trailers' }),
      ]);
      const began = answers[2].status === 200 && sidecar.spool.records.filter(isClose).length === answers.length;
      return began || timeoutMs >= MOST_TIMEOUT_MS ? { sidecar, answers } : await running(4 * timeoutMs);
    };
    const { sidecar, answers } = await running(1000);
    const [whole, silent, begun] = answers;
    holdError(t, 'whole', whole, expect('timeout'));
    holdError(t, 'a stream without a token', silent, expect('timeout'));
    t.equal(begun.status, 200);
    const frames = begun.body.split('\n\n').filter((frame) => frame.startsWith('data: '));
    t.match(frames.at(-1), /^data: \{"error":\{"message":"[^"]+","type":"timeout","code":"timeout","param":null\}\}$/);
    t.equal(frames.filter((frame) => frame.includes('"error"')).length, 1, 'exactly one error frame');
    t.notMatch(begun.body, /\[DONE\]|"finish_reason":"/);
    t.match(begun.trailers[0]?.join(': '), /^Server-Timing: ra-ttft;dur=/);
    const outcomes = sidecar.spool.records.filter(isClose).map(({ outcome }) => outcome);
    t.strictSame(outcomes, ['timeout', 'timeout', 'timeout'], 'the usage record has the reason');
    t.equal(await sidecar.metric('ra_sidecar_seats_busy{model="chat"}'), 0);
  });

  await t.test('waiting', async (t) => {
    const sidecar = await start(1000);
    // Without a prompt host no request becomes ready for a seat. All of this process are stopped: those of its other sidecars
    // cannot be told apart.
    const hosts = childrenOf(process.pid).filter(({ command }) => command.includes(SHORT_LANE));
    for (const { pid } of hosts) process.kill(pid, 'SIGSTOP');
    const answer = await sidecar.post(CHAT, chatBody('chat', 'echo'));
    for (const { pid } of hosts) process.kill(pid, 'SIGCONT');
    holdError(t, 'waiting', answer, expect('timeout'));
    t.match(errorOf(answer).message, /while it waited/);
    t.equal(await sidecar.metric('ra_sidecar_refusals_total{model="chat",reason="deadline"}'), 1);
    let again = await sidecar.post(CHAT, chatBody('chat', 'echo'));
    for (let i = 0; i < MOST_TRIES && again.status === 504; i += 1)
      again = await sidecar.post(CHAT, chatBody('chat', 'echo'));
    t.equal(again.status, 200, 'the sidecar serves again');
  });
});

t.test('under `contract: compatible`', async (t) => {
  const sidecar = await InProcess.start(t, {
    models: [
      { id: 'chat', kind: 'chat', contextPerSeat: 1024 },
      { id: 'org/small:4', kind: 'chat' },
    ],
    config: { contract: 'compatible' },
  });
  for (const id of ['org/small:4', 'org%2Fsmall:4', 'org%2fsmall%3A4']) {
    const model = await sidecar.ask('GET', `/v1/models/${id}`, JSON_HEADERS);
    t.match(JSON.parse(model.body), { id: 'org/small:4' }, id);
  }
  const long = 'word '.repeat(4000);
  for (const [path, body, param] of [
    [CHAT, { model: 'chat', messages: [{ role: 'user', content: long }] }, 'messages'],
    ['/v1/responses', { model: 'chat', input: long }, 'input'],
  ] as const) {
    const answer = await sidecar.post(path, body);
    holdError(t, `${path}: over the context`, answer, expect('context_length_exceeded', { param }));
    t.match(errorOf(answer).message, /maximum context length is 1024 tokens.*reduce the length of the messages/);
  }
  const upgrade = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', ...JSON_HEADERS };
  const refused = await sidecar.ask('GET', '/v1/responses', upgrade);
  holdError(t, 'a WebSocket', refused, expect('bad_request', { status: 426 }));
  const get = await sidecar.ask('GET', '/v1/responses', JSON_HEADERS);
  holdError(t, 'a GET', get, expect('bad_request', { status: 405 }));
});

t.test('every code occurred', async (t) => {
  t.strictSame([...reached].sort(), Object.keys(CATALOGUE).sort());
});

/** The metric sample that counts such answers. */
function answered(method: string, route: string, status: number, error: ErrorCode): string {
  const labels = `http_request_method="${method}",url_scheme="http",http_route="${route}"`;
  return `http_server_request_duration_seconds_count{${labels},http_response_status_code="${status}",error_type="${error}"}`;
}
