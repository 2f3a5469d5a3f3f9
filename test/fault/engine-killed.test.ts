import t from 'tap';
import { NOTHING_LEARNED, PATIENT_ENGINE, REFUSES_COLD } from '../support/config-parts.js';
import { counted } from '../support/counted.js';
import { ENDLESS, SHORT, endsEarly, endsWell, OpenStream } from '../support/open-stream.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';
import { ENGINE, ProcessGate } from '../support/process-gate.js';

const BAD_GATEWAY = { code: 'bad_gateway', type: 'server_error' };

const label = { model: CHAT };
const times = <T>(count: number, make: (i: number) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => make(i)));

t.test('an engine killed under eight streams and two whole requests', async (t) => {
  const gate = new ProcessGate(t, { stub: true });
  const { environment } = gate;
  const sidecar = await Sidecar.start(t, { stub: true, config: await chatOnly(10, 8192), environment });
  const first = sidecar.enginePid(CHAT);
  // The whole ones are sent first, so that they have begun when the streams have a token.
  const whole = times(2, () => sidecar.chat(ENDLESS));
  await counted(sidecar, 'seats_busy', 2);
  const streams = await times(8, () => OpenStream.begin(sidecar));
  t.equal(await sidecar.metric('ra_sidecar_seats_busy', label), 10);

  gate.close(ENGINE);
  process.kill(first, 'SIGKILL');
  const { goOn } = await gate.stopped();

  for (const { response } of streams) {
    const ended = await response;
    t.equal(ended.status, 200);
    endsEarly(t, ended, BAD_GATEWAY);
  }
  for (const response of await whole) {
    t.equal(response.status, 502);
    t.match(await response.json(), { error: BAD_GATEWAY });
    t.ok(response.headers.get('x-request-id'));
  }
  t.match(await sidecar.logged('engine lost'), { model: CHAT, reason: 'killed', signal: 'SIGKILL', count: 10 });
  const starting = { status: 'starting', parts: { models: 'starting', usage: 'ready' } };
  t.strictSame(await sidecar.readyz(), { status: 503, body: starting }, 'others see no more');
  t.match(await sidecar.readyz(sidecar.operatorsPort), { status: 503, body: { reasons: [`cold: ${CHAT}`] } });
  t.equal(await sidecar.metric('ra_sidecar_seats_busy', label), 0, 'no seat is in use while there is no engine');

  goOn();
  await sidecar.logged('engine ready', 2);
  t.match(await sidecar.readyz(), { status: 200, body: { status: 'ready' } });
  t.not(sidecar.enginePid(CHAT), first);
  t.equal(await sidecar.metric('ra_sidecar_engine_restarts_total', label), 1);

  // All seats are available again: all are used at once, no request waits, and all are freed.
  const again = await times(10, () => OpenStream.begin(sidecar));
  t.equal(await sidecar.metric('ra_sidecar_seats_busy', label), 10);
  t.equal(await sidecar.metric('ra_sidecar_waiting_requests', label), 0);
  again.forEach((stream) => stream.leave());
  await counted(sidecar, 'seats_busy', 0);
  const after = await OpenStream.begin(sidecar, SHORT);
  endsWell(t, await after.response);
  t.equal(sidecar.child.exitCode, null, 'the sidecar ran all the time');
});

t.test('requests that wait when the engine ends', async (t) => {
  const parts = { queue: REFUSES_COLD, development: NOTHING_LEARNED, engine: PATIENT_ENGINE };
  const gate = new ProcessGate(t, { stub: true });
  const { environment } = gate;
  const sidecar = await Sidecar.start(t, {
    stub: true,
    config: { ...(await chatOnly(1, 8192)), ...parts },
    environment,
  });
  const order = (): unknown[] =>
    sidecar.lines.filter(({ event, status }) => event === 'request' && status === 200).map((line) => line['requestId']);

  await t.test('keep their place, while new ones are refused as cold', async (t) => {
    const running = await OpenStream.begin(sidecar);
    const waiting: Promise<Response>[] = [];
    for (const name of ['first', 'second', 'third']) {
      const headers = { 'x-request-id': name };
      waiting.push(sidecar.post('/chat/completions', SHORT, { headers }));
      await counted(sidecar, 'waiting_requests', waiting.length);
    }

    gate.close(ENGINE);
    process.kill(sidecar.enginePid(CHAT), 'SIGKILL');
    const { goOn } = await gate.stopped();
    endsEarly(t, await running.response, BAD_GATEWAY);

    const refused = await sidecar.chat(SHORT);
    t.equal(refused.status, 503);
    t.match(await refused.json(), { error: { code: 'cold', type: 'server_error' } });
    t.match(refused.headers.get('retry-after'), /^[1-9][0-9]*$/);
    t.match(refused.headers.get('retry-after-ms'), /^[1-9][0-9]*$/);
    t.equal(await sidecar.metric('ra_sidecar_waiting_requests', label), 3, 'all three still wait');

    const before = order().length;
    goOn();
    for (const response of await Promise.all(waiting)) t.equal(response.status, 200);
    await sidecar.logged('request', 3, ({ status, requestId }) => status === 200 && isNamed(requestId));
    t.strictSame(order().slice(before), ['first', 'second', 'third']);
  });

  await t.test('a request that had a seat but was not begun returns to its place, once', async (t) => {
    const pid = sidecar.enginePid(CHAT);
    // The engine is stopped: it receives the job and begins nothing.
    process.kill(pid, 'SIGSTOP');
    const whole = sidecar.chat(SHORT);
    await counted(sidecar, 'seats_busy', 1);
    process.kill(pid, 'SIGKILL');
    const response = await whole;
    t.equal(response.status, 200);
    t.match(await response.json(), { usage: { completion_tokens: 4 } });
    t.match(await sidecar.logged('engine lost', 2), { count: 1 });
    await counted(sidecar, 'seats_busy', 0);
    t.equal(await sidecar.metric('ra_sidecar_engine_restarts_total', label), 2);
  });
});

function isNamed(requestId: unknown): boolean {
  return requestId === 'first' || requestId === 'second' || requestId === 'third';
}
