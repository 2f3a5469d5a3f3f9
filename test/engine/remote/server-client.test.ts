import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { adapterFor } from '../../../engine/remote/start.js';
import { Flights, RemoteJob } from '../../../engine/remote/flights.js';
import { ServerClient } from '../../../engine/remote/server-client.js';
import { testPair } from '../../support/certificates.js';
import { FakeClock } from '../../support/fake-clock.js';
import { ServerStub } from '../../support/server-stub.js';

const SETUP = { kind: 'vllm', cancelWaitMs: 1000, silentMs: 1000, tokenMs: 1000 } as const;

t.test('over a Unix socket', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'ra-socket-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const socket = join(dir, 'server.sock');
  await ServerStub.start(t, 'vllm', { socket });
  const setup = { ...SETUP, url: 'http://localhost', socket };
  t.match(await adapterFor({ setup, client: new ServerClient(setup) }).open(), { kind: 'open' });
  const absent = { ...setup, socket: join(dir, 'other.sock') };
  t.match(await adapterFor({ setup: absent, client: new ServerClient(absent) }).open(), { why: 'absent' });
});

t.test('with a key, which the server must accept', async (t) => {
  const stub = await ServerStub.start(t, 'vllm', { key: 'right' });
  const setup = { ...SETUP, url: stub.url };
  const open = (key?: string) => adapterFor({ setup, client: new ServerClient({ ...setup, key }) }).open();
  t.match(await open('right'), { kind: 'open' });
  for (const key of ['wrong', undefined]) {
    const why = 'its health check is answered with 401: engine.secretFile has no key that it accepts';
    t.strictSame(await open(key), { kind: 'unfit', why });
  }
});

t.test('a certificate that is not trusted, or none, is named and not waited for', async (t) => {
  const tls = await ServerStub.start(t, 'vllm', { tls: testPair('a') });
  const plain = await ServerStub.start(t, 'vllm');
  const cases = [
    [tls.url, 'DEPTH_ZERO_SELF_SIGNED_CERT'],
    [plain.url.replace('http:', 'https:'), 'EPROTO'],
  ] as const;
  for (const [url, code] of cases) {
    const setup = { ...SETUP, url };
    const opened = await adapterFor({ setup, client: new ServerClient(setup) }).open();
    t.match(opened, { kind: 'unfit', why: new RegExp(`^the TLS handshake with it fails \\(${code}`) });
  }
});

t.test('a request whose prompt or reply makes no progress within its bound is ended', (t) => {
  const clock = new FakeClock();
  const flights = new Flights(clock, { silentMs: 180_000, tokenMs: 60_000, cancelWaitMs: 1000 });
  const flight = (name: string) => ({ name, begun: true, close: () => undefined });
  const [silent, prompt, token] = [flight('silent'), flight('prompt'), flight('token')];
  const job = new RemoteJob(1, { items: 1, seats: 1, tokens: () => 10, begin: () => silent });
  for (const one of [silent, prompt, token]) flights.add(one, job, 10);
  const ended = (): string[] => flights.silent().map(({ flight: { name } }) => name);
  clock.advance(120_000);
  flights.moved(prompt, 'prompt');
  flights.moved(token, 'token');
  clock.advance(60_000);
  t.strictSame(ended(), []);
  clock.advance(1);
  t.strictSame(ended(), ['silent', 'token']);
  t.end();
});
