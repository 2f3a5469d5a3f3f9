import t from 'tap';
import { ENDLESS, SHORT } from '../support/open-stream.js';
import { CHAT } from '../support/sidecar.js';
import { Pool } from './pool.js';
import { startNginx } from './proxies.js';
import { ask, Call, proxyCases } from './proxy-cases.js';

t.test('behind nginx', (t) => proxyCases(t, startNginx, { trailers: false }));

t.test('what cannot reach a sidecar that is gone goes to the other', async (t) => {
  const pool = await Pool.start(t);
  const proxy = await startNginx(t, pool);
  pool.sidecar('a').child.kill('SIGKILL');
  await pool.sidecar('a').exited();
  for (let i = 0; i < 4; i++) t.equal((await ask(t, proxy, pool, SHORT)).status, 200);
});

t.test(
  'what a draining sidecar refuses goes to the other, long or short; when both refuse, their own word passes',
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
    // Its stream keeps it draining for as long as this test looks.
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
