import { Agent, request } from 'node:http';
import t from 'tap';
import { ENDLESS } from '../support/open-stream.js';
import { OpenLoad } from '../support/open-load.js';
import { eventually } from '../support/processes.js';
import { Pool, type Name } from './pool.js';
import { startHaproxy, type Proxy } from './proxies.js';

/** Far below what two sidecars can serve, so that no request waits or is refused for its time. */
const PER_SECOND = 20;
const TOKENS = 48;
/** Longer than what HAProxy buffers to send it again. */
const LONG_BODY = 200_000;

/** How a request ended. `policy`: refused with 429. */
type End = 'whole' | 'policy' | 'refused' | 'cut' | 'broken';

interface Answer {
  readonly end: End;
  readonly status: number;
  readonly stream: boolean;
}

t.test('both sidecars are restarted under load, in turn, without interruption', async (t) => {
  const pool = await Pool.start(t, { seats: 8, config: { drain: { noticeMs: 3000 } } });
  const proxy = await startHaproxy(t, pool);
  const agent = new Agent({ keepAlive: true });
  t.teardown(() => agent.destroy());
  const load = new OpenLoad<Answer>(PER_SECOND, (i) => send(proxy, pool, agent, i));
  t.teardown(() => load.end());
  for (const name of ['a', 'b'] as const) {
    const old = pool.sidecar(name);
    await serves(pool, name);
    old.child.kill('SIGTERM');
    t.strictSame(await old.exited(), { code: 0, signal: null }, `${name} drained`);
    t.equal(
      old.lines.find(({ event }) => event === 'drain timed out'),
      undefined,
    );
    await pool.begin(name);
    await serves(pool, name);
  }
  const answers = await load.end();
  const count = (end: End, stream?: boolean): number =>
    answers.filter((answer) => answer.end === end && (stream === undefined || answer.stream === stream)).length;
  t.comment(
    `${answers.length} requests: ${count('whole', true)} streams and ${count('whole', false)} whole replies, ${count('policy')} refused by policy`,
  );
  t.equal(count('cut'), 0, 'no stream was cut');
  t.equal(count('broken'), 0, 'no connection broke');
  t.strictSame(
    answers.filter(({ end }) => end === 'refused').map(({ status }) => status),
    [],
    'none was refused except with 429',
  );
  t.ok(count('whole', true) > 50 && count('whole', false) > 50, 'there were requests');
});

/** The restarted sidecar received requests. */
async function serves(pool: Pool, name: Name): Promise<void> {
  const sidecar = pool.sidecar(name);
  await eventually(`${name} serves`, () =>
    sidecar.lines.some(({ event, status }) => event === 'request' && status === 200),
  );
}

/** Every second one is a stream, every fourth one is too long to be retried. Never rejects. */
function send({ port }: Proxy, { key }: Pool, agent: Agent, i: number): Promise<Answer> {
  const stream = i % 2 === 0;
  const text = JSON.stringify({ ...ENDLESS, max_tokens: TOKENS, stream }).padEnd(i % 4 < 2 ? 0 : LONG_BODY);
  return new Promise((resolve) => {
    const sent = request({
      agent,
      port,
      host: '127.0.0.1',
      method: 'POST',
      path: '/v1/chat/completions',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
    });
    const broken = (): void => resolve({ end: 'broken', status: 0, stream });
    sent.on('error', broken);
    sent.on('response', (response) => {
      const status = response.statusCode ?? 0;
      let body = '';
      response.setEncoding('utf8').on('error', broken);
      response.on('data', (chunk: string) => (body += chunk));
      response.on('end', () => {
        const whole = stream ? body.includes('data: [DONE]\n\n') : body.includes('"finish_reason":"length"');
        if (status === 200) resolve({ end: whole ? 'whole' : 'cut', status, stream });
        else resolve({ end: status === 429 ? 'policy' : 'refused', status, stream });
      });
    });
    sent.end(text);
  });
}
