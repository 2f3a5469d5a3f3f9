/**
 * The order of checks (docs/contract.md#order-of-checks): a request that fails two of them gets the answer of the
 * earlier one. Credit, the last check, is in billing.test.ts.
 */
import t from 'tap';
import { KeyFileIdentity } from '../../sidecar/access/key-identity.js';
import type { ErrorCode } from '../../sidecar/domain/errors.js';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { errorOf } from '../support/error-answer.js';
import {
  ACME,
  chatBody,
  decisionBody,
  FakeIdentity,
  InProcess,
  JSON_HEADERS,
  systemOneBody,
} from '../support/in-process.js';
import { makeKey } from '../support/keys.js';
import type { RawResponse } from '../support/raw-http.js';

const CHAT = '/v1/chat/completions';
const MIB = 1024 * 1024;

/** A valid body for each route and `model`. */
const ROUTES = [
  { path: CHAT, own: 'chat', other: 'decide', body: (model: string): object => chatBody(model, 'echo') },
  { path: '/v1/decisions', own: 'decide', other: 'chat', body: decisionBody },
  { path: '/v1/systemone', own: 'decide', other: 'chat', body: systemOneBody },
] as const;

/** A conversation that no template of the tests can express: arguments that are no JSON. */
const BROKEN_CALL = {
  role: 'assistant',
  tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{' } }],
};
const HELLO = { role: 'user', content: 'Hello.' };
const TOO_LONG = { role: 'user', content: 'word '.repeat(3000) };

t.test('the order of checks', async (t) => {
  const frozen = makeKey({ account: 'frozen', revoked: '2026-01-02T00:00:00Z' });
  const expired = makeKey({ account: 'frozen', expires: '2026-01-02T00:00:00Z' });
  const file = { version: 1, accounts: { frozen: { frozen: true } }, keys: [frozen.stored, expired.stored] } as const;
  const sidecar = await InProcess.start(t, {
    models: [
      { id: 'chat', kind: 'chat' },
      { id: 'narrow', kind: 'chat', seats: 1 },
      { id: 'mortal', kind: 'chat', seats: 1 },
      { id: 'decide', kind: 'decision' },
      { id: 'cold-chat', kind: 'chat', cold: true },
      { id: 'cold-decide', kind: 'decision', cold: true },
    ],
    config: {
      queue: { ...PATIENT_QUEUE, waitingPerSeat: 1 },
      bodies: { chatBytes: MIB },
      // An engine that ended is not restarted during the test.
      engine: { backoffMinMs: 3_600_000, backoffMaxMs: 3_600_000 },
    },
    identity: new FakeIdentity(new KeyFileIdentity(file, 'development')),
  });
  const { identity, spool } = sidecar;
  const as = (key: string): Record<string, string> => ({ ...JSON_HEADERS, Authorization: `Bearer ${key}` });
  const text = (headers: Readonly<Record<string, string>>): Record<string, string> => ({
    ...headers,
    'Content-Type': 'text/plain',
  });
  const keyless = { 'Content-Type': 'application/json' };
  identity.answers.set('Bearer limited', { kind: 'denied', code: 'user_rate_limited' });
  identity.answers.set('Bearer icy', { kind: 'denied', code: 'account_frozen' });
  identity.answers.set('Bearer modelless', { ...ACME, models: new Set() });
  identity.answers.set('Bearer routeless', { ...ACME, routes: new Set() });

  const answered = (response: RawResponse): string => `${response.status} ${errorOf(response).code}`;
  const is = (pair: string, response: RawResponse, status: number, code: ErrorCode): void => {
    t.equal(answered(response), `${status} ${code}`, pair);
  };
  /** Keeps the one seat and the one waiting place of `model` occupied. */
  const fill = async (model: string): Promise<() => Promise<void>> => {
    const running = await sidecar.begin(CHAT, chatBody(model, 'hold'));
    await sidecar.until(`ra_sidecar_seats_busy{model="${model}"}`, 1);
    const waiting = await sidecar.begin(CHAT, chatBody(model, 'hold'), { 'Idempotency-Key': 'waiting' });
    await sidecar.until(`ra_sidecar_waiting_requests{model="${model}",class="standard"}`, 1);
    return async () => {
      waiting.close();
      running.close();
      await sidecar.until(`ra_sidecar_seats_busy{model="${model}"}`, 0);
    };
  };

  const nowhere = '/v1/nothing';
  is('path, method', await sidecar.ask('PATCH', nowhere, {}), 404, 'not_found');
  is('path, key', await sidecar.ask('POST', nowhere, keyless, '{}'), 404, 'not_found');
  is('method, key', await sidecar.ask('PATCH', CHAT, {}), 405, 'bad_request');

  spool.health = { ok: false, why: 'write' };
  for (const { path } of ROUTES) {
    is('path, spool', await sidecar.ask('POST', `${path}/`, keyless, '{}'), 404, 'not_found');
    is('method, spool', await sidecar.ask('DELETE', path, keyless), 405, 'bad_request');
    is('spool, key', await sidecar.ask('POST', path, keyless, '{}'), 503, 'spool_unhealthy');
    is('spool, content type', await sidecar.ask('POST', path, text(JSON_HEADERS), '{}'), 503, 'spool_unhealthy');
  }
  spool.health = { ok: true };

  for (const { path, own, other, body } of ROUTES) {
    const at = (pair: string): string => `${pair} at ${path}`;
    const post = (headers: Record<string, string>, what: unknown): Promise<RawResponse> =>
      sidecar.ask('POST', path, headers, typeof what === 'string' ? what : JSON.stringify(what));
    const large = ' '.repeat(MIB + 1);

    is(at('key, account: revoked'), await post(as(frozen.key), body(own)), 401, 'revoked_api_key');
    is(at('key, account: expired'), await post(as(expired.key), body(own)), 401, 'expired_api_key');
    is(at('key, content type'), await post(text(keyless), ''), 401, 'invalid_api_key');
    is(at('account, content type'), await post(text(as('icy')), ''), 403, 'account_frozen');
    is(at('per-key limits, content type'), await post(text(as('limited')), ''), 429, 'user_rate_limited');
    is(at('key, size'), await post(keyless, large), 401, 'invalid_api_key');
    is(at('content type, size'), await post(text(JSON_HEADERS), large), 415, 'bad_request');
    is(at('content type, schema'), await post(text(JSON_HEADERS), '{'), 415, 'bad_request');
    is(at('size, schema'), await post(JSON_HEADERS, large), 413, 'payload_too_large');
    // Above what is parsed inline, then inline. Routes with closed bodies refuse an unknown field.
    for (const bad of [`{"model":"${own}"}${' '.repeat(100_000)}`, `{"model":"${own}"}`]) {
      is(at('schema, entitlement: model'), await post(as('modelless'), bad), 400, 'bad_request');
      is(at('schema, entitlement: route'), await post(as('routeless'), bad), 400, 'bad_request');
    }
    is(at('schema, endpoint'), await post(JSON_HEADERS, { model: other }), 400, 'bad_request');
    is(at('entitlement, endpoint: model'), await post(as('modelless'), body(other)), 403, 'model_not_entitled');
    is(at('entitlement, endpoint: route'), await post(as('routeless'), body(other)), 403, 'model_not_entitled');
    is(at('entitlement, cold'), await post(as('modelless'), body(`cold-${own}`)), 403, 'model_not_entitled');
    is(at('endpoint, cold'), await post(JSON_HEADERS, body(`cold-${other}`)), 400, 'unsupported_endpoint');
    is(
      at('cold, idempotency'),
      await post({ ...JSON_HEADERS, 'Idempotency-Key': '"' }, body(`cold-${own}`)),
      503,
      'cold',
    );
  }

  const broken = { messages: [HELLO, BROKEN_CALL] };
  const long = { messages: [TOO_LONG] };
  const post = (body: object, headers = {}): Promise<RawResponse> => sidecar.post(CHAT, body, headers);
  const empty = await fill('narrow');
  const full = 'capacity_exceeded';
  is('schema, place', await post(chatBody('narrow', 'echo', { x: 1 })), 400, 'bad_request');
  is(
    'idempotency, place',
    await post(chatBody('narrow', 'hold'), { 'Idempotency-Key': 'waiting' }),
    409,
    'idempotency_key_reused',
  );
  is('malformed key, place', await post(chatBody('narrow', 'echo'), { 'Idempotency-Key': '"' }), 400, 'bad_request');
  is('place, template', await post(chatBody('narrow', 'echo', broken)), 429, full);
  is('place, token bound of the prompt', await post(chatBody('narrow', 'echo', long)), 429, full);
  is('place, token bound of the reply', await post(chatBody('narrow', 'echo', { max_tokens: 9999 })), 429, full);
  await empty();
  is(
    'template, token bound of the prompt',
    await post(chatBody('chat', 'echo', { messages: [TOO_LONG, BROKEN_CALL] })),
    422,
    'unprocessable',
  );
  is(
    'template, token bound of the reply',
    await post(chatBody('chat', 'echo', { ...broken, max_tokens: 9999 })),
    422,
    'unprocessable',
  );

  const running = await sidecar.begin(CHAT, chatBody('narrow', 'hold'));
  await sidecar.until('ra_sidecar_seats_busy{model="narrow"}', 1);
  is('template, a seat', await post(chatBody('narrow', 'echo', broken)), 422, 'unprocessable');
  is('token bounds, a seat', await post(chatBody('narrow', 'echo', long)), 400, 'bad_request');
  running.close();

  await fill('mortal');
  const { pid } = await sidecar.seen('engine forked', ({ model }) => model === 'mortal');
  process.kill(pid ?? NaN, 'SIGKILL');
  await sidecar.seen('engine lost', ({ model }) => model === 'mortal');
  t.equal(
    await sidecar.metric('ra_sidecar_waiting_requests{model="mortal",class="standard"}'),
    1,
    'the queue is still full',
  );
  is('cold, place', await post(chatBody('mortal', 'echo')), 503, 'cold');

  // One answered request uses up the key’s minute; from then on no later check runs.
  const once = { inFlight: 0, perMinute: 1 };
  for (const { path, own, body } of ROUTES) {
    const key = `counted ${path}`.replaceAll(/[^a-z]/g, '-');
    const counted = { ...ACME, keyId: key, limits: { chat: once, decisions: once } };
    const ask = (headers: Record<string, string>, what: string): Promise<RawResponse> =>
      sidecar.ask('POST', path, headers, what);
    identity.answers.set(`Bearer ${key}`, counted);
    t.equal((await ask(as(key), JSON.stringify(body(own)))).status, 200);
    is(`the key's own limits, content type at ${path}`, await ask(text(as(key)), ''), 429, 'user_rate_limited');
    is(`the key's own limits, schema at ${path}`, await ask(as(key), '{'), 429, 'user_rate_limited');
    identity.answers.set(`Bearer ${key}`, { kind: 'denied', code: 'account_frozen' });
    is(`account, the key's own limits at ${path}`, await ask(text(as(key)), ''), 403, 'account_frozen');
  }

  const open = await sidecar.begin(CHAT, chatBody('chat', 'begun', { stream: true }));
  await open.until('begun');
  const drained = sidecar.app.drain();
  spool.health = { ok: false, why: 'write' };
  is('path, draining', await sidecar.ask('POST', nowhere, keyless, '{}'), 404, 'not_found');
  for (const { path } of ROUTES) {
    is('method, draining', await sidecar.ask('PUT', path, keyless, '{}'), 405, 'bad_request');
    is('draining, spool', await sidecar.ask('POST', path, JSON_HEADERS, '{}'), 503, 'draining');
    is('draining, key', await sidecar.ask('POST', path, keyless, '{}'), 503, 'draining');
  }
  open.close();
  await drained;
});
