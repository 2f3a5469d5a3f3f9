/** Overload as callers and operators see it. */
import t from 'tap';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { errorOf } from '../support/error-answer.js';
import { ACME, chatBody, InProcess, JSON_HEADERS } from '../support/in-process.js';
import { HELD_TOKENS } from '../support/stub-script.js';

const CHAT = '/v1/chat/completions';

t.test('a client’s own timeout bounds its wait', async (t) => {
  const sidecar = await InProcess.start(t, { models: [{ id: 'm', kind: 'chat', seats: 1 }] });
  const refused = async (seconds: string, reason: string): Promise<void> => {
    const answer = await sidecar.post(CHAT, chatBody('m', 'echo'), { 'X-Stainless-Timeout': seconds });
    t.equal(answer.status, 429, reason);
    t.equal(errorOf(answer).code, 'capacity_exceeded');
    t.ok(Number(answer.field('Retry-After')) >= 1);
    t.equal(await sidecar.metric(`ra_sidecar_refusals_total{model="m",reason="${reason}"}`), 1);
  };
  const begin = async (): Promise<{ close: () => void }> => {
    const running = await sidecar.begin(CHAT, chatBody('m', 'begun', { stream: true }));
    await running.until('begun');
    return running;
  };
  const first = await begin();
  // No request has ended, so no wait is predicted: it waits until its timeout.
  await refused('0.05', 'hopeless');
  first.close();
  await sidecar.until('ra_sidecar_seats_busy{model="m"}', 0);
  const second = await begin();
  // The first one held the seat for 50 ms and more.
  await refused('0.001', 'named');
  const waits = await sidecar.begin(CHAT, chatBody('m', 'echo'), { 'X-Stainless-Timeout': '600' });
  await sidecar.until('ra_sidecar_waiting_requests{model="m",class="standard"}', 1);
  second.close();
  t.equal((await waits.response()).status, 200);
});

t.test('a caller that disconnects in the queue frees its place at once, long before a seat is free', async (t) => {
  const sidecar = await InProcess.start(t, {
    models: [{ id: 'm', kind: 'chat', seats: 1 }],
    config: { queue: { ...PATIENT_QUEUE, waitingPerSeat: 2 } },
  });
  const waiting = (count: number): Promise<void> =>
    sidecar.until('ra_sidecar_waiting_requests{model="m",class="standard"}', count);
  const running = await sidecar.begin(CHAT, chatBody('m', 'begun', { stream: true }));
  await running.until('begun');
  const leaver = await sidecar.begin(CHAT, chatBody('m', 'hold'), { 'x-request-id': 'leaver' });
  await waiting(1);
  const next = await sidecar.begin(CHAT, chatBody('m', 'echo'), { 'x-request-id': 'next' });
  await waiting(2);
  t.equal(errorOf(await sidecar.post(CHAT, chatBody('m', 'echo'))).code, 'capacity_exceeded', 'the queue is full');

  const from = performance.now();
  leaver.close();
  t.match(await sidecar.seen('request', ({ requestId }) => requestId === 'leaver'), { status: 499 });
  t.comment(`from the socket's close to the free place: ${(performance.now() - from).toFixed(2)} ms`);
  t.equal(await sidecar.metric('ra_sidecar_waiting_requests{model="m",class="standard"}'), 1);
  t.equal(await sidecar.metric('ra_sidecar_cancels_total{model="m",phase="waiting"}'), 1);
  const last = await sidecar.begin(CHAT, chatBody('m', 'echo'), { 'x-request-id': 'last' });
  await waiting(2);
  t.equal(await sidecar.metric('ra_sidecar_seats_busy{model="m"}'), 1);
  t.notOk(
    sidecar.lines.some(({ event, status }) => event === 'request' && status === 200),
    'no seat came free meanwhile',
  );
  running.close();
  for (const caller of [next, last]) t.equal((await caller.response()).status, 200);
  const ended = sidecar.lines.filter(
    ({ event, requestId }) => event === 'request' && /^(leaver|next|last)$/.test(requestId ?? ''),
  );
  t.same(
    ended.map(({ requestId }) => requestId),
    ['leaver', 'next', 'last'],
  );
});

t.test('a stream that asks is told its place, and a refusal tells where it would stand', async (t) => {
  const sidecar = await InProcess.start(t, {
    models: [{ id: 'm', kind: 'chat', seats: 1 }],
    config: { queue: { ...PATIENT_QUEUE, waitingPerSeat: 3 } },
  });
  const stream = chatBody('m', 'echo', { stream: true });
  const waiting = (count: number): Promise<void> =>
    sidecar.until('ra_sidecar_waiting_requests{model="m",class="standard"}', count);
  const running = await sidecar.begin(CHAT, chatBody('m', 'begun', { stream: true }));
  await running.until('begun');
  const unknown = await sidecar.begin(CHAT, stream, { 'x-ra-queue': '1' });
  await waiting(1);
  await unknown.until('\r\n\r\n13\r\n: queue position=0\n\r\n');
  running.close();
  t.match((await unknown.response()).body, /^: queue position=0\ndata: /, 'the comment came before the first frame');

  const again = await sidecar.begin(CHAT, chatBody('m', 'begun', { stream: true }));
  await again.until('begun');
  const [first, second, silent] = [{ 'x-ra-queue': '1' }, { 'x-ra-queue': '1' }, { 'x-ra-queue': '0' }];
  const told: Awaited<ReturnType<typeof sidecar.begin>>[] = [];
  for (const [at, headers] of [first, second, silent].entries()) {
    told.push(await sidecar.begin(CHAT, stream, headers));
    await waiting(at + 1);
  }
  const refused = await sidecar.post(CHAT, stream);
  t.equal(refused.status, 429);
  t.equal(refused.field('x-queue-position'), '3');
  t.match(refused.field('x-expected-wait-ms'), /^[1-9]\d*$/);
  t.match(refused.field('Access-Control-Expose-Headers'), /x-queue-position, x-expected-wait-ms/);
  await told[1]?.until(': queue position=1 wait_ms=');
  again.close();
  const bodies = await Promise.all(told.map(async (each) => (await each.response()).body));
  t.match(bodies[0], /^: queue position=0 wait_ms=[1-9]\d*\ndata: /);
  t.match(bodies[1], /^: queue position=1 wait_ms=[1-9]\d*\ndata: /);
  t.match(bodies[2], /^data: /, 'not asked for');
});

t.test('the operators’ page shows waiting and running requests', async (t) => {
  const sidecar = await InProcess.start(t, { models: [{ id: 'm', kind: 'chat', seats: 1 }] });
  await sidecar.begin(CHAT, chatBody('m', 'hold'));
  await sidecar.until('ra_sidecar_seats_busy{model="m"}', 1);
  await sidecar.begin(CHAT, chatBody('m', 'hold'), { 'x-ra-deadline-ms': '1' });
  await sidecar.until('ra_sidecar_waiting_requests{model="m",class="standard"}', 1);
  const page = await fetch(`http://127.0.0.1:${sidecar.app.operatorsPort}/admission`);
  t.equal(page.status, 200);
  t.match(await page.json(), {
    models: [
      { model: 'm', seats: 1, busy: 1, waiting: 1, accounts: [{ account: ACME.account, waiting: 1, running: 1 }] },
    ],
  });
  t.equal((await sidecar.ask('GET', '/admission', JSON_HEADERS)).status, 404, 'the public listener does not serve it');
});

t.test('the metrics page has the tokens in the engines’ KV memory, and its size', async (t) => {
  const sidecar = await InProcess.start(t, { models: [{ id: 'm', kind: 'chat', seats: 2, contextPerSeat: 1024 }] });
  await sidecar.until('ra_sidecar_kv_tokens{model="m",use="running"}', HELD_TOKENS.running);
  t.equal(await sidecar.metric('ra_sidecar_kv_tokens{model="m",use="kept"}'), HELD_TOKENS.kept);
  t.equal(await sidecar.metric('ra_sidecar_kv_capacity_tokens{model="m"}'), 2048);
});
