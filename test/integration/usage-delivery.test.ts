import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { UsageEvent } from '../../sidecar/usage/delivery/sink.js';
import { NatsPeer } from '../support/nats-peer.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';
import { UsageSink } from '../support/usage-sink.js';

const CANARY = 'a confidential prompt';

async function start(t: Test, dataDir: string, delivery: object, more: object = {}): Promise<Sidecar> {
  const config = { ...(await chatOnly(2)), dataDir, delivery, ...more };
  return await Sidecar.start(t, { stub: true, config });
}

function events(sink: UsageSink): UsageEvent[] {
  return sink.requests.flatMap(({ body }) => JSON.parse(body) as UsageEvent[]);
}

async function folder(t: Test): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ra-delivery-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

t.test('a caller’s usage that waits at SIGTERM arrives at the sink before the process ends', async (t) => {
  const sink = await UsageSink.start(t);
  const delivery = { url: sink.url, maxAgeMs: 60_000, source: '/edge-7' };
  const sidecar = await start(t, await folder(t), delivery, { contract: 'compatible' });
  const messages = [{ role: 'user', content: CANARY }];
  const response = await sidecar.chat({ messages, max_tokens: 5 });
  const { usage } = (await response.json()) as { usage: { prompt_tokens: number; completion_tokens: number } };
  t.equal(sink.requests.length, 0);
  const get = async (path: string): Promise<unknown> =>
    (await fetch(`${sidecar.base}${path}`, { headers: { authorization: `Bearer ${sidecar.key}` } })).json();
  const { data } = (await get('/usage?limit=31&group_by=model')) as { data: { results: object[] }[] };
  t.match(
    data.flatMap(({ results }) => results),
    [{ model: CHAT, num_model_requests: 1, input_tokens: usage.prompt_tokens, output_tokens: usage.completion_tokens }],
    'the caller sees it as soon as it is answered',
  );
  t.match(await get('/account'), {
    id: 'development',
    limits: [{ routes: 'decisions', limit: 600, remaining: 600 }, {}],
  });
  sidecar.child.kill('SIGTERM');
  t.strictSame(await sidecar.exited(), { code: 0, signal: null });
  const [event, ...more] = events(sink);
  t.equal(more.length, 0);
  t.match(event, {
    specversion: '1.0',
    source: '/edge-7',
    type: 'ai.runanywhere.usage.v1',
    data: {
      requestId: response.headers.get('x-request-id') ?? '',
      kind: 'close',
      route: 'chat',
      promptTokens: usage.prompt_tokens,
      completionTokens: usage.completion_tokens,
      outcome: 'done',
    },
  });
  t.equal(event?.subject, event?.data.account);
  t.equal(event?.id, event?.data.id);
  const sent = sink.requests.map(({ body }) => body).join();
  t.notOk(sent.includes(CANARY) || sent.includes(sidecar.key));
});

t.test('what NATS’ client prints of its server’s bytes, a password in them, is not in the log', async (t) => {
  const password = 'Zilpzalp-4Kx9Lm3Rt6Yb';
  const dataDir = await folder(t);
  const secretFile = join(dataDir, 'login');
  await writeFile(secretFile, `edge:${password}\n`);
  const server = await NatsPeer.start(t);
  server.echoes = true;
  const nats = { servers: [`nats://127.0.0.1:${server.port}`], auth: 'password', secretFile };
  // The client does not notice that it cannot read any more: only the time limit ends the attempt.
  const sidecar = await start(t, dataDir, { nats, maxAgeMs: 0, timeoutMs: 200 }, { log: { level: 'debug' } });
  await (await sidecar.chat({ messages: [{ role: 'user', content: 'Hello' }], max_tokens: 2 })).text();
  // Each line of stdout has been read as JSON.
  await sidecar.logged('a library printed, which is not shown');
  await sidecar.logged('usage delivery waits');
  t.match(server.connects[0], { user: 'edge', pass: password });
  t.notMatch(`${JSON.stringify(sidecar.lines)}${sidecar.printed}`, password);
});
