/** POST /v1/completions, which is not served, as raw HTTP. */
import t from 'tap';
import { ACME, FakeIdentity, InProcess, JSON_HEADERS } from '../support/in-process.js';
import type { RawResponse } from '../support/raw-http.js';
import { CHAT, DECIDE } from '../support/sidecar.js';

const PATH = '/v1/completions';

t.test('text completion', async (t) => {
  const identity = new FakeIdentity();
  identity.answers.set('Bearer chat', { ...ACME, models: new Set([CHAT]) });
  const sidecar = await InProcess.start(t, {
    identity,
    models: [
      { id: CHAT, kind: 'chat' },
      { id: DECIDE, kind: 'decision' },
    ],
  });
  const connection = await sidecar.connect();
  const headers = JSON_HEADERS;
  const post = (body: string, given: Record<string, string> = headers): Promise<RawResponse> =>
    connection.request('POST', PATH, given, body).response();
  const codeOf = async (answer: Promise<RawResponse>): Promise<unknown> => {
    const { status, body } = await answer;
    const { error } = JSON.parse(body) as { error: { code: string; param: string | null; type: string } };
    return [status, error.code, error.param, error.type];
  };
  const notFound = [404, 'not_found', null, 'invalid_request_error'];
  const unsupported = [400, 'unsupported_endpoint', 'model', 'invalid_request_error'];

  t.strictSame(await codeOf(post(JSON.stringify({ model: DECIDE, prompt: 'x' }))), unsupported, 'a decision model');
  t.strictSame(await codeOf(post(JSON.stringify({ model: DECIDE }))), unsupported, 'whatever else is in the body');
  t.strictSame(await codeOf(post(JSON.stringify({ model: CHAT, prompt: 'x' }))), notFound, 'a chat model');
  t.strictSame(await codeOf(post('{"model":"nobody-hosts-this"}')), notFound, 'no model of ours');
  for (const body of ['', '{', '7', 'null', '[]', '{}', '{"model":7}', `{"model":"${DECIDE}","model":"${DECIDE}"}`]) {
    t.strictSame(await codeOf(post(body)), notFound, `a body without a model: ${body}`);
  }
  const text = { ...headers, 'Content-Type': 'text/plain' };
  t.strictSame(await codeOf(post(JSON.stringify({ model: DECIDE }), text)), notFound, 'another content type');

  const other = { ...headers, Authorization: 'Bearer chat' };
  t.strictSame(
    await codeOf(post(JSON.stringify({ model: DECIDE }), other)),
    notFound,
    'a decision model that the key may not call is answered as an unknown one',
  );

  const response = await post('{}');
  t.equal(response.field('x-should-retry'), 'false');
  t.match(response.field('x-request-id'), /./);

  const noKey = { 'Content-Type': 'application/json' };
  t.strictSame(
    await codeOf(post(JSON.stringify({ model: DECIDE }), noKey)),
    [401, 'invalid_api_key', null, 'authentication_error'],
    'the key comes first',
  );
  t.equal((await connection.request('GET', PATH, headers).response()).status, 405, 'the method comes before the key');

  const padded = (bytes: number): string => JSON.stringify({ model: DECIDE }).padEnd(bytes);
  t.strictSame(await codeOf(post(padded(16 * 1024))), unsupported, 'of the longest length that is parsed');
  t.strictSame(await codeOf(post(padded(16 * 1024 + 1))), notFound, 'longer, which is not parsed');

  // Its declared length exceeds the bound: it is answered before its bytes are sent.
  const big = await sidecar.connect();
  big.request('POST', PATH, { ...headers, 'Content-Length': String(16 * 1024 + 1) }, `{"model":"${DECIDE}"`);
  t.strictSame(await codeOf(big.response()), notFound, 'a body over the bound');
});
