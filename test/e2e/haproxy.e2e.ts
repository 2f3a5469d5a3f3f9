import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { connect } from 'node:http2';
import t, { type Test } from 'tap';
import { endsWell, ENDLESS, frames, SHORT } from '../support/open-stream.js';
import { eventually } from '../support/processes.js';
import { CHAT } from '../support/sidecar.js';
import { Pool } from './pool.js';
import { startHaproxy } from './proxies.js';
import { ask, Call, proxyCases } from './proxy-cases.js';

/** The health check does not run again during a test. */
const BLIND = { 'check inter 1s': 'check inter 1h' };

t.test('behind HAProxy', (t) => proxyCases(t, startHaproxy, { trailers: true }));

t.test('a stream over HTTP/2 and TLS ends with its trailer', async (t) => {
  const pool = await Pool.start(t);
  const { tlsPort } = await startHaproxy(t, pool);
  const session = connect(`https://127.0.0.1:${tlsPort}`, { rejectUnauthorized: false });
  t.teardown(() => session.destroy());
  const stream = session.request({
    ':method': 'POST',
    ':path': '/v1/chat/completions',
    authorization: `Bearer ${pool.key}`,
    'content-type': 'application/json',
    te: 'trailers',
  });
  stream.end(JSON.stringify({ ...SHORT, stream: true }));
  const seen: Record<string, unknown>[] = [];
  stream.on('response', (headers) => seen.push(headers));
  stream.on('trailers', (trailers: Record<string, unknown>) => seen.push(trailers));
  let body = '';
  for await (const chunk of stream.setEncoding('utf8')) body += String(chunk);
  t.match(seen[0], { ':status': 200 });
  t.match(seen[1], { 'server-timing': /^ra-ttft;dur=[0-9.]+$/ });
  t.match(body, /data: \[DONE\]\n\n/);
});

t.test('a request that cannot reach a stopped sidecar is sent to the other', async (t) => {
  const pool = await Pool.start(t);
  const proxy = await startHaproxy(t, pool, BLIND);
  pool.sidecar('a').child.kill('SIGKILL');
  await pool.sidecar('a').exited();
  for (let i = 0; i < 4; i++) t.equal((await ask(t, proxy, pool, SHORT)).status, 200);
});

t.test(
  'a request that a draining sidecar refuses is sent to the other; if both refuse, the sidecar’s answer is returned',
  async (t) => {
    const pool = await Pool.start(t, { seats: 1 });
    const proxy = await startHaproxy(t, pool, BLIND);
    const engines: number[] = [];
    for (const name of ['a', 'b'] as const) {
      const running = await Call.begin(t, proxy, pool, { ...ENDLESS, stream: true });
      await running.connection.until('"delta"');
      engines.push(pool.sidecar(name).enginePid(CHAT));
    }
    // Their streams keep both draining during the test.
    for (const pid of engines) process.kill(pid, 'SIGSTOP');
    t.teardown(() => engines.forEach((pid) => process.kill(pid, 'SIGCONT')));
    await drains(pool, 'a');
    const waiting = await Call.begin(t, proxy, pool, SHORT);
    await eventually('the other one served it', async () => {
      return (await pool.sidecar('b').metric('ra_sidecar_waiting_requests')) === 1;
    });
    await drains(pool, 'b');
    for (const response of [await waiting.response(), await ask(t, proxy, pool, SHORT)]) {
      t.equal(response.status, 503);
      t.match(JSON.parse(response.body), { error: { code: 'draining' } });
      t.match(response.field('retry-after'), /^[1-9][0-9]*$/);
    }
    const long = await ask(t, proxy, pool, JSON.stringify(SHORT).padEnd(100_000));
    t.equal(long.status, 503, 'too long to be sent again, and answered all the same');
  },
);

t.test('a sidecar that is not ready gets no requests, and finishes those that it has', async (t) => {
  const pool = await Pool.start(t, { contextPerSeat: 16_384, config: { drain: { noticeMs: 600_000 } } });
  const log = await LogReceiver.open(t);
  const proxy = await startHaproxy(t, pool, { 'log /dev/log local0': `log 127.0.0.1:${log.port} local0` });
  const running = await Call.begin(t, proxy, pool, { ...ENDLESS, max_tokens: 8000, stream: true });
  await running.connection.until('"delta"');
  const first = (await pool.busy()) ?? 'a';
  const other = first === 'a' ? 'b' : 'a';
  const engine = pool.sidecar(first).enginePid(CHAT);
  process.kill(engine, 'SIGSTOP');
  t.teardown(() => process.kill(engine, 'SIGCONT'));
  pool.sidecar(other).child.kill('SIGTERM');
  await pool.sidecar(other).logged('leaving');
  pool.sidecar(first).child.kill('SIGTERM');
  await pool.sidecar(first).logged('leaving');

  let answer = await ask(t, proxy, pool, '{}');
  await eventually('both are out of the pool', async () => {
    answer = await ask(t, proxy, pool, '{}');
    return answer.status === 503;
  });
  t.match(JSON.parse(answer.body), { error: { code: 'gateway_unavailable', type: 'server_error' } });
  t.equal(answer.field('retry-after'), '1');
  t.match(answer.field('x-request-id'), /^[0-9a-f-]{36}$/);
  const named = await ask(t, proxy, pool, '{}', { 'x-request-id': 'my-request' });
  t.strictSame([named.status, named.field('x-request-id')], [503, 'my-request'], 'the request’s own id, if it has one');
  await eventually('it is in the log', () => log.text.includes(' {my-request} '));
  process.kill(engine, 'SIGCONT');
  endsWell(t, await running.response());
});

t.test('a whole reply may take longer than the proxy’s idle timeout for its caller', async (t) => {
  const pool = await Pool.start(t, { config: { stream: { keepAliveMs: 1500 } } });
  const proxy = await startHaproxy(t, pool, { 'timeout client 60s': 'timeout client 1s' });
  const whole = await Call.begin(t, proxy, pool, { ...ENDLESS, max_tokens: 1500 });
  await eventually('it runs', async () => (await pool.busy()) !== undefined);
  const engines = (['a', 'b'] as const).map((name) => pool.sidecar(name).enginePid(CHAT));
  for (const pid of engines) process.kill(pid, 'SIGSTOP');
  const stream = await Call.begin(t, proxy, pool, { ...SHORT, stream: true });
  // Half as long again as the timeout.
  await stream.connection.until(': keep-alive');
  for (const pid of engines) process.kill(pid, 'SIGCONT');
  t.equal((await whole.response()).status, 200);
  t.equal(frames(await stream.response()).at(-1), '[DONE]');
});

/** Receives syslog messages over UDP; closed with the test. */
class LogReceiver {
  text = '';
  readonly port: number;

  private constructor(socket: Socket) {
    this.port = socket.address().port;
    socket.on('message', (message) => (this.text += message.toString()));
  }

  static async open(t: Test): Promise<LogReceiver> {
    const socket = createSocket('udp4');
    t.teardown(() => void socket.close());
    socket.bind(0, '127.0.0.1');
    await once(socket, 'listening');
    return new LogReceiver(socket);
  }
}

async function drains(pool: Pool, name: 'a' | 'b'): Promise<void> {
  pool.sidecar(name).child.kill('SIGTERM');
  await pool.sidecar(name).logged('draining');
}
