/**
 * The Messages API as raw HTTP: whole and streamed, counts, models, keys, errors row by row. Fields are in fields.test.ts,
 * recorded requests in agents.test.ts, what is the same for all chat routes in both-contracts.test.ts.
 */
import t from 'tap';
import { validateAnswer } from '../../sidecar/contracts/answer-schemas.js';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import type { MessageError } from '../support/error-answer.js';
import { ACME, InProcess, JSON_HEADERS } from '../support/in-process.js';
import { collected, eventsOf, type Message } from '../support/message-events.js';
import type { RawResponse } from '../support/raw-http.js';
import { REUSED_TOKENS, STUB_JOB, STUB_TOP_K } from '../support/stub-script.js';

const MESSAGES = '/v1/messages';
const COUNT = '/v1/messages/count_tokens';
const VERSION = { 'anthropic-version': '2023-06-01' };

const HELLO = [{ role: 'user', content: 'Hello.' }];
const LOOK = { name: 'look', input_schema: { type: 'object', properties: {} } };

type Fields = Readonly<Record<string, unknown>>;

/** A body whose stub does `act`. */
function body(act: keyof typeof STUB_JOB, more: Fields = {}): Fields {
  return { model: 'chat', max_tokens: 64, messages: HELLO, top_k: STUB_TOP_K + STUB_JOB[act], ...more };
}

const sidecar = await InProcess.start(t, {
  models: [
    { id: 'chat', kind: 'chat', seats: 4, contextPerSeat: 8192 },
    { id: 'narrow', kind: 'chat', seats: 1 },
    { id: 'cold', kind: 'chat', cold: true },
    { id: 'decide', kind: 'decision' },
  ],
  config: {
    contract: 'compatible',
    bodies: { chatBytes: 400_000 },
    queue: { ...PATIENT_QUEUE, waitingPerSeat: 1 },
    stream: { keepAliveMs: 1000 },
  },
});

t.test('a whole reply and a stream have the same blocks, stop and usage', async (t) => {
  const asked = body('everything', { tools: [LOOK], tool_choice: { type: 'any' } });
  const whole = await sidecar.post(MESSAGES, asked, { 'X-Request-Id': 'mine' });
  t.equal(whole.status, 200);
  t.equal(whole.field('request-id'), 'mine');
  const { id, ...message } = JSON.parse(whole.body) as Message & { id: string };
  t.match(id, /^msg_[0-9a-f]{32}$/);
  const prompt = message.usage['input_tokens'] ?? 0;
  t.ok(prompt > 0);
  t.match(message, {
    type: 'message',
    role: 'assistant',
    model: 'chat',
    content: [
      { type: 'thinking', thinking: 'Hm, so.', signature: /./ },
      { type: 'text', text: 'It is.' },
      { type: 'tool_use', id: /^[0-9A-Za-z]{9}$/, name: 'look', input: { at: 1, 2: 'b' } },
    ],
    stop_reason: 'tool_use',
    stop_sequence: null,
    usage: {
      cache_creation_input_tokens: 0,
      cache_read_input_tokens: REUSED_TOKENS,
      output_tokens: 8,
      output_tokens_details: { thinking_tokens: 3 },
    },
  });
  t.ok(whole.body.includes('"input":{"at": 1.0, "2": "b"}'), 'the input as it was written');

  const streamed = await sidecar.post(MESSAGES, { ...asked, stream: true });
  t.equal(streamed.field('content-type'), 'text/event-stream; charset=utf-8');
  t.type(streamed.field('request-id'), 'string');
  const events = eventsOf(streamed.body);
  t.equal(events.length, streamed.body.match(/^data: /gm)?.length, 'each event has its name');
  t.ok(events.every(({ name, data }) => name === data.type));
  t.strictSame(
    events.map(({ name }) => name).filter((name) => name !== 'content_block_delta'),
    [
      'message_start',
      ...Array.from({ length: 3 }, () => ['content_block_start', 'content_block_stop']).flat(),
      'message_delta',
      'message_stop',
    ],
  );
  t.strictSame(
    (events[0]?.data['message'] as Message).usage,
    { ...message.usage, output_tokens: 0, output_tokens_details: { thinking_tokens: 0 } },
    'the first event counts the whole prompt and no output',
  );
  const made = collected(events);
  const withoutIds = (blocks: readonly Fields[]): unknown => blocks.map((block) => ({ ...block, id: undefined }));
  t.strictSame(
    { ...made, id: '', content: withoutIds(made.content) },
    { ...message, id: '', content: withoutIds(message.content) },
  );
});

t.test('why a message ended', async (t) => {
  const stopOf = async (more: Fields, act: keyof typeof STUB_JOB = 'paced'): Promise<unknown[]> => {
    const { stop_reason: reason, stop_sequence: sequence } = JSON.parse(
      (await sidecar.post(MESSAGES, body(act, more))).body,
    ) as Message;
    return [reason, sequence];
  };
  t.strictSame(await stopOf({}, 'echo'), ['end_turn', null]);
  t.strictSame(await stopOf({ max_tokens: 2 }), ['max_tokens', null]);
  const filling = [{ role: 'user', content: 'a '.repeat(8100) }];
  t.strictSame(
    await stopOf({ max_tokens: 32_000, messages: filling }),
    ['model_context_window_exceeded', null],
    'a maximum over what the prompt leaves is cut',
  );
});

t.test('pings hold a stream until its first token, and after', async () => {
  const silent = await sidecar.begin(MESSAGES, body('hold', { stream: true }));
  await silent.until('event: ping\ndata: {"type":"ping"}\n\n');
  silent.close();
  const begun = await sidecar.begin(MESSAGES, body('begun', { stream: true }));
  await begun.until('event: content_block_delta\n');
  await begun.until('event: ping\n');
  begun.close();
});

t.test('the key in x-api-key, and beside a bearer token', async (t) => {
  const post = (headers: Readonly<Record<string, string>>, path = MESSAGES): Promise<RawResponse> =>
    sidecar.ask('POST', path, { 'Content-Type': 'application/json', ...headers }, JSON.stringify(body('echo')));
  for (const path of [MESSAGES, COUNT]) {
    t.equal((await post({ 'x-api-key': 'good' }, path)).status, 200);
    t.equal((await post({ 'x-api-key': 'bad' }, path)).status, 401);
    t.equal((await post({ 'x-api-key': 'bad', Authorization: 'Bearer good' }, path)).status, 200, 'the token counts');
  }
  t.equal((await post({ 'x-api-key': 'good', 'X-Api-Key': 'bad' })).status, 400, 'given twice');
  t.equal((await post({ 'x-api-key': 'good' }, '/v1/chat/completions')).status, 401, 'not on other routes');
  t.equal((await sidecar.ask('GET', '/v1/models', { 'x-api-key': 'good' })).status, 200);
});

t.test('models, to clients that name a version', async (t) => {
  const ask = (path: string): Promise<RawResponse> => sidecar.ask('GET', path, { ...VERSION, 'x-api-key': 'good' });
  const created = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z$/;
  const described = (id: string, context: number): object => ({
    type: 'model',
    id,
    display_name: id,
    created_at: created,
    max_input_tokens: context,
    max_tokens: context,
    capabilities: null,
  });
  const list = await ask('/v1/models?limit=1000');
  t.type(list.field('request-id'), 'string');
  const found = JSON.parse(list.body) as { data: object[] };
  t.match(found, {
    data: [described('chat', 8192), described('narrow', 1024), described('cold', 1024)],
    has_more: false,
    first_id: 'chat',
    last_id: 'cold',
  });
  t.strictSame(Object.keys(found), ['data', 'has_more', 'first_id', 'last_id']);
  t.match(JSON.parse((await ask('/v1/models/narrow')).body), described('narrow', 1024));
  const unknown = await ask('/v1/models/none');
  t.match(JSON.parse(unknown.body), { type: 'error', error: { type: 'permission_error' } });
  const usual = await sidecar.ask('GET', '/v1/models', JSON_HEADERS);
  t.match(JSON.parse(usual.body), { object: 'list' });
});

/** Tokens of a request's prompt, by its usage. */
async function usedOf(asked: Fields): Promise<number> {
  const { usage } = JSON.parse((await sidecar.post(MESSAGES, asked)).body) as Message;
  return (usage['input_tokens'] ?? 0) + (usage['cache_read_input_tokens'] ?? 0);
}

t.test('a count needs no seat, is not recorded or charged, and counts against the limits of chat', async (t) => {
  sidecar.identity.answers.set('Bearer counts', {
    ...ACME,
    keyId: 'counts',
    limits: { chat: { perMinute: 3 } },
    tokensPerDay: 1,
  });
  const headers = { Authorization: 'Bearer counts' };
  const held = await sidecar.begin(MESSAGES, body('hold', { model: 'narrow' }));
  await sidecar.until('ra_sidecar_seats_busy{model="narrow"}', 1);
  const waiting = await sidecar.begin(MESSAGES, body('echo', { model: 'narrow' }));
  await sidecar.until('ra_sidecar_waiting_requests{model="narrow",class="standard"}', 1);
  const before = sidecar.spool.records.length;
  const count = (): Promise<RawResponse> => sidecar.post(COUNT, body('echo', { model: 'narrow' }), headers);
  for (let left = 2; left >= 0; left -= 1) {
    const counted = await count();
    t.match(JSON.parse(counted.body), { input_tokens: /^\d+$/ });
    t.equal(counted.field('anthropic-ratelimit-requests-limit'), '3');
    t.equal(counted.field('anthropic-ratelimit-requests-remaining'), `${left}`);
    t.equal(counted.field('anthropic-ratelimit-tokens-remaining'), '1', 'no token of the quota is used');
    t.match(counted.field('anthropic-ratelimit-tokens-reset'), /^\d{4}-\d\d-\d\dT00:00:00Z$/);
  }
  t.equal(sidecar.spool.records.length, before);
  const limited = await count();
  t.equal(limited.status, 429);
  t.equal(limited.field('anthropic-ratelimit-requests-remaining'), '0');
  const resetMs = Date.parse(limited.field('anthropic-ratelimit-requests-reset') ?? '') - Date.now();
  t.ok(resetMs > 0 && resetMs <= 61_000, 'rounded to a second');
  t.equal((await sidecar.post(COUNT, body('echo'))).field('anthropic-ratelimit-tokens-limit'), undefined, 'no quota');
  t.match(JSON.parse(limited.body), {
    error: { type: 'rate_limit_error', details: { error_code: 'user_rate_limited' } },
  });
  held.close();
  t.equal((await waiting.response()).status, 200);
});

t.test('the billing line of Claude Code is no part of the prompt', async (t) => {
  const line = 'x-anthropic-billing-header: cc_version=1.0.0; cc_entrypoint=cli;';
  const plain = await usedOf({ ...body('clocked'), system: 'Be brief.' });
  const texts = [line, 'Be brief.'].map((each) => ({ type: 'text', text: each }));
  t.equal(await usedOf({ ...body('clocked'), system: texts }), plain);
  t.ok((await usedOf({ ...body('clocked'), system: texts.reverse() })) > plain, 'anywhere else it is text');
});

const long = (content: string): readonly object[] => [{ role: 'user', content }];

t.test('errors have the form, the status and the headers of this API', async (t) => {
  const post = (asked: object, headers: Readonly<Record<string, string>> = {}): Promise<RawResponse> =>
    sidecar.post(MESSAGES, asked, headers);
  const holds = (name: string, answer: RawResponse, status: number, errorType: string, details: object): void => {
    const { type, error, request_id: id } = JSON.parse(answer.body) as MessageError;
    t.match(
      { status: answer.status, type, errorType: error.type, details: error.details, id },
      { status, type: 'error', errorType, details, id: answer.field('request-id') },
      name,
    );
    t.equal(answer.field('x-request-id'), id, name);
    t.equal(/^\d+$/.test(answer.field('retry-after') ?? ''), status === 529, `${name}: Retry-After`);
    t.equal(answer.field('x-should-retry'), status < 500 ? 'false' : undefined, name);
  };
  const invalid = 'invalid_request_error';
  for (const thread of [{ type: 'create' }, { type: 'continue', previous_message_id: 'msg_1' }]) {
    const details = { error_code: 'thread_unsupported_request', param: 'thread' };
    holds('a thread', await post(body('echo', { thread })), 400, invalid, details);
  }
  holds('a type', await post({}, { 'Content-Type': 'text/plain' }), 415, invalid, { error_code: 'bad_request' });
  const input_schema = { type: 'object', properties: { a: { enum: ['b'], type: 'null' } }, required: ['a'] };
  const tools = [{ ...LOOK, input_schema }];
  const impossible = await post(body('echo', { tools, tool_choice: { type: 'tool', name: 'look' } }));
  holds('a schema', impossible, 400, invalid, { error_code: 'unprocessable', param: 'tools[0].input_schema' });
  const unknown = await sidecar.post(`${MESSAGES}/batches?beta=true`, {});
  holds('a path without a route', unknown, 404, 'not_found_error', { error_code: 'not_found' });

  const running = await sidecar.begin(MESSAGES, body('hold', { model: 'narrow' }));
  await sidecar.until('ra_sidecar_seats_busy{model="narrow"}', 1);
  const waiting = await sidecar.begin(MESSAGES, body('echo', { model: 'narrow' }));
  await sidecar.until('ra_sidecar_waiting_requests{model="narrow",class="standard"}', 1);
  const full = await post(body('echo', { model: 'narrow' }));
  holds('no capacity', full, 529, 'overloaded_error', { error_code: 'capacity_exceeded' });
  t.equal(full.reason, 'Overloaded');
  t.equal(await sidecar.metric(answeredOver('capacity_exceeded', 529)), 1, 'counted as it was answered');
  running.close();
  t.equal((await waiting.response()).status, 200);

  sidecar.spool.failOn = 'close';
  const cut = eventsOf((await post(body('echo', { stream: true }))).body);
  sidecar.spool.failOn = undefined;
  t.match(cut.at(-1), { name: 'error', data: { type: 'error', error: { type: 'api_error' }, request_id: /./ } });
  t.ok(validateAnswer('MessageError', cut.at(-1)?.data).ok, 'a stream that ends early ends with one error');
  t.notOk(cut.some(({ name }) => name === 'message_stop'));
});

/** The metric sample that counts such answers. */
function answeredOver(code: string, status: number): string {
  const labels = `http_request_method="POST",url_scheme="http",http_route="${MESSAGES}"`;
  return `http_server_request_duration_seconds_count{${labels},http_response_status_code="${status}",error_type="${code}"}`;
}

t.test('a prompt that is too long is refused in the words by which clients shorten it', async (t) => {
  const says = async (content: string): Promise<string> => {
    const answer = await sidecar.post(MESSAGES, body('echo', { messages: long(content) }));
    t.equal(answer.status, 400);
    return (JSON.parse(answer.body) as MessageError).error.message;
  };
  t.match(await says('a '.repeat(9000)), /^prompt is too long: \d+ tokens > 8192 maximum$/, 'counted');
  t.match(await says('a '.repeat(150_000)), /^prompt is too long: \d+ tokens > 8192 maximum$/, 'by its length alone');
});

t.test('an image that the model does not see is refused in the words by which Claude Code takes it out', async (t) => {
  const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' } };
  for (const path of [MESSAGES, COUNT]) {
    const answer = await sidecar.post(path, body('echo', { messages: [{ role: 'user', content: [image] }] }));
    t.match(JSON.parse(answer.body), {
      error: {
        message: /^could not process image: messages\[0\]\.content\[0\] is an image/,
        type: 'invalid_request_error',
      },
    });
    t.equal(answer.status, 400);
  }
});
