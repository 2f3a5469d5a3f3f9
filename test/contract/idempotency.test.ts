/** `Idempotency-Key` over HTTP: which requests consume a key, which do not, and that no request runs twice. */
import t from 'tap';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { errorOf } from '../support/error-answer.js';
import { ACME, chatBody, decisionBody, InProcess, systemOneBody } from '../support/in-process.js';
import type { RawResponse } from '../support/raw-http.js';

const CHAT = '/v1/chat/completions';
const IMAGE = { role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:,a' } }] };

t.test('Idempotency-Key', async (t) => {
  const sidecar = await InProcess.start(t, {
    models: [
      { id: 'chat', kind: 'chat', seats: 1, contextPerSeat: 32_768 },
      { id: 'cold', kind: 'chat', cold: true },
      { id: 'decide', kind: 'decision' },
    ],
    config: { queue: { ...PATIENT_QUEUE, waitingPerSeat: 1 } },
  });
  let last = 0;
  const fresh = (): { readonly 'Idempotency-Key': string } => ({ 'Idempotency-Key': `key-${(last += 1)}` });
  const runs = (): number => sidecar.spool.records.filter(({ kind }) => kind === 'open').length;
  const answered = (response: RawResponse): string =>
    response.status === 200 ? '200' : `${response.status} ${errorOf(response).code}`;
  const again = '409 idempotency_key_reused';
  const other = '422 idempotency_key_reused';
  const seatTaken = (): Promise<void> => sidecar.until('ra_sidecar_seats_busy{model="chat"}', 1);
  const seatFree = (): Promise<void> => sidecar.until('ra_sidecar_seats_busy{model="chat"}', 0);

  await t.test('a repeat of a completed request gets 409 and does not run', async (t) => {
    for (const [path, body] of [
      [CHAT, chatBody('chat', 'echo')],
      [CHAT, chatBody('chat', 'echo', { stream: true })],
      // Longer than what is parsed inline.
      [CHAT, chatBody('chat', 'echo', { messages: [{ role: 'user', content: ' '.repeat(20_000) }], stop: 's' })],
      ['/v1/decisions', decisionBody('decide')],
      ['/v1/systemone', systemOneBody('decide')],
    ] as const) {
      const key = fresh();
      const first = await sidecar.post(path, body, key);
      t.equal(first.status, 200, path);
      const before = runs();
      const second = await sidecar.post(path, body, key);
      t.equal(answered(second), again);
      t.match(errorOf(second).message, /was completed.*not run again/);
      t.equal(runs(), before, 'nothing ran');
    }
  });

  await t.test('bare and quoted forms are one key; other routes and accounts are independent', async (t) => {
    const key = fresh()['Idempotency-Key'];
    t.equal(answered(await sidecar.post('/v1/decisions', decisionBody('decide'), { 'Idempotency-Key': key })), '200');
    const quoted = { 'Idempotency-Key': `"${key}"` };
    t.equal(answered(await sidecar.post('/v1/decisions', decisionBody('decide'), quoted)), again);
    t.equal(answered(await sidecar.post('/v1/decisions', decisionBody('decide', { temperature: 2 }), quoted)), other);
    t.equal(answered(await sidecar.post(CHAT, chatBody('chat', 'echo'), quoted)), other);
    sidecar.identity.answers.set('Bearer zeta', { ...ACME, account: 'zeta' });
    sidecar.identity.answers.set('Bearer second', { ...ACME, keyId: 'key-2' });
    const zeta = await sidecar.post('/v1/decisions', decisionBody('decide'), {
      ...quoted,
      Authorization: 'Bearer zeta',
    });
    t.equal(answered(zeta), '200');
    const second = { ...quoted, Authorization: 'Bearer second' };
    t.equal(
      answered(await sidecar.post('/v1/decisions', decisionBody('decide'), second)),
      again,
      'the keys of one account share it',
    );
  });

  await t.test('a disconnect in flight frees the key', async (t) => {
    const key = fresh();
    const running = await sidecar.begin(CHAT, chatBody('chat', 'begun', { stream: true }), key);
    await running.until('begun');
    const answer = await sidecar.post(CHAT, chatBody('chat', 'begun', { stream: true }), key);
    t.equal(answered(answer), again);
    t.match(errorOf(answer).message, /under way/);
    t.equal(answered(await sidecar.post(CHAT, chatBody('chat', 'echo'), key)), other);
    running.close();
    await seatFree();
    t.equal(answered(await sidecar.post(CHAT, chatBody('chat', 'echo'), key)), '200');
  });

  await t.test('a refusal does not consume it', async (t) => {
    const key = fresh();
    const running = await sidecar.begin(CHAT, chatBody('chat', 'hold'));
    await seatTaken();
    const waiting = await sidecar.begin(CHAT, chatBody('chat', 'echo'), fresh());
    await sidecar.until('ra_sidecar_waiting_requests{model="chat",class="standard"}', 1);
    for (let i = 0; i < 2; i += 1)
      t.equal(answered(await sidecar.post(CHAT, chatBody('chat', 'echo'), key)), '429 capacity_exceeded');
    const waitingKey = { 'Idempotency-Key': `key-${last}` };
    t.equal(
      answered(await sidecar.post(CHAT, chatBody('chat', 'echo'), waitingKey)),
      again,
      'a waiting request is in flight',
    );
    waiting.close();
    await sidecar.until('ra_sidecar_waiting_requests{model="chat",class="standard"}', 0);
    running.close();
    await seatFree();
    t.equal(
      answered(await sidecar.post(CHAT, chatBody('chat', 'echo'), waitingKey)),
      '200',
      'disconnected while waiting',
    );

    for (const [name, refusal, body] of [
      ['outside the contract', '400 bad_request', chatBody('chat', 'echo', { x: 1 })],
      ['too many tokens', '400 bad_request', chatBody('chat', 'echo', { max_tokens: 50_000 })],
      ['an image', '400 bad_request', chatBody('chat', 'echo', { messages: [IMAGE] })],
      ['not entitled', '403 model_not_entitled', chatBody('none', 'echo')],
      ['the wrong route', '400 unsupported_endpoint', chatBody('decide', 'echo')],
      ['cold', '503 cold', chatBody('cold', 'echo')],
    ] as const)
      t.equal(answered(await sidecar.post(CHAT, body, key)), refusal, name);
    sidecar.spool.health = { ok: false, why: 'write' };
    t.equal(answered(await sidecar.post(CHAT, chatBody('chat', 'echo'), key)), '503 spool_unhealthy');
    sidecar.spool.health = { ok: true };
    t.equal(
      answered(await sidecar.post(CHAT, chatBody('chat', 'echo'), key)),
      '200',
      'after all of these it can be used',
    );
    t.equal(answered(await sidecar.post(CHAT, chatBody('chat', 'echo'), key)), again);
  });

  await t.test('a failed engine does not consume it', async (t) => {
    const key = fresh();
    t.equal(answered(await sidecar.post(CHAT, chatBody('chat', 'fail'), key)), '502 bad_gateway');
    t.equal(answered(await sidecar.post(CHAT, chatBody('chat', 'fail'), key)), '502 bad_gateway', 'it ran again');
    t.equal(answered(await sidecar.post(CHAT, chatBody('chat', 'echo'), key)), '200');
  });

  await t.test('malformed', async (t) => {
    for (const value of ['', '""', '"a', 'a b', 'k'.repeat(256)]) {
      const answer = await sidecar.post(CHAT, chatBody('chat', 'echo'), { 'Idempotency-Key': value });
      t.equal(answered(answer), '400 bad_request', value);
      t.match(errorOf(answer).message, /Idempotency-Key must be/);
    }
    const twice = await sidecar.connect();
    const body = JSON.stringify(chatBody('chat', 'echo'));
    twice.send(
      `POST ${CHAT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer good\r\nContent-Type: application/json\r\n` +
        `Idempotency-Key: a\r\nIdempotency-Key: b\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    t.equal(answered(await twice.response()), '400 bad_request', 'given twice');
  });
});
