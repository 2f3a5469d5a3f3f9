import t from 'tap';
import { ENDLESS, SHORT } from '../support/open-stream.js';
import { eventually } from '../support/processes.js';
import { CHAT } from '../support/sidecar.js';
import { Pool } from './pool.js';
import { startNginx } from './proxies.js';
import { ask, Call, proxyCases } from './proxy-cases.js';

t.test('behind nginx', (t) => proxyCases(t, startNginx, { trailers: false }));

t.test('a request that cannot reach a stopped sidecar is sent to the other', async (t) => {
  const pool = await Pool.start(t);
  const proxy = await startNginx(t, pool);
  pool.sidecar('a').child.kill('SIGKILL');
  await pool.sidecar('a').exited();
  for (let i = 0; i < 4; i++) t.equal((await ask(t, proxy, pool, SHORT)).status, 200);
});

t.test(
  'one refuses, the other is down or crashes: errors have the API’s form, and 503 only if the request ran nowhere',
  async (t) => {
    const pool = await Pool.start(t);
    // So that a is always tried first.
    const proxy = await startNginx(t, pool, {
      [`${pool.socket('b')} max_fails`]: `${pool.socket('b')} backup max_fails`,
    });
    const running = await Call.begin(t, proxy, pool, { ...ENDLESS, stream: true });
    await running.connection.until('"delta"');
    const engine = pool.sidecar('a').enginePid(CHAT);
    process.kill(engine, 'SIGSTOP');
    t.teardown(() => process.kill(engine, 'SIGCONT'));
    pool.sidecar('a').child.kill('SIGTERM');
    await pool.sidecar('a').logged('draining');

    const cut = await Call.begin(t, proxy, pool, { ...ENDLESS, stream: false });
    await eventually('b has it', async () => (await pool.sidecar('b').metric('ra_sidecar_seats_busy')) === 1);
    pool.sidecar('b').child.kill('SIGKILL');
    await pool.sidecar('b').exited();
    const broken = await cut.response();
    t.equal(broken.status, 502, 'it ran');
    t.match(JSON.parse(broken.body), { error: { code: 'bad_gateway', type: 'server_error' } });
    t.equal(broken.field('retry-after'), undefined);

    const response = await ask(t, proxy, pool, SHORT, { 'x-request-id': 'nobody' });
    t.equal(response.status, 503);
    t.match(JSON.parse(response.body), { error: { code: 'gateway_unavailable', type: 'server_error' } });
    t.equal(response.field('retry-after'), '1');
    t.equal(response.field('x-request-id'), 'nobody');
  },
);

t.test(
  'a request that a draining sidecar refuses is sent to the other, long or short; if both refuse, the sidecar’s answer is returned',
  async (t) => {
    const pool = await Pool.start(t);
    const proxy = await startNginx(t, pool);
    const engines: number[] = [];
    for (const name of ['a', 'b'] as const) {
      const running = await Call.begin(t, proxy, pool, { ...ENDLESS, stream: true });
      await running.connection.until('"delta"');
      engines.push(pool.sidecar(name).enginePid(CHAT));
    }
    const [first = 0, second = 0] = engines;
    // Its stream keeps it draining during the test.
    process.kill(first, 'SIGSTOP');
    t.teardown(() => process.kill(first, 'SIGCONT'));
    pool.sidecar('a').child.kill('SIGTERM');
    await pool.sidecar('a').logged('draining');
    for (const length of [0, 0, 3_000_000, 3_000_000]) {
      t.equal((await ask(t, proxy, pool, JSON.stringify(SHORT).padEnd(length))).status, 200);
    }
    process.kill(second, 'SIGSTOP');
    t.teardown(() => process.kill(second, 'SIGCONT'));
    pool.sidecar('b').child.kill('SIGTERM');
    await pool.sidecar('b').logged('draining');
    const response = await ask(t, proxy, pool, SHORT);
    t.equal(response.status, 503);
    t.match(JSON.parse(response.body), { error: { code: 'draining' } });
    t.match(response.field('retry-after'), /^[1-9][0-9]*$/);
    t.ok(response.field('x-request-id'));
  },
);
