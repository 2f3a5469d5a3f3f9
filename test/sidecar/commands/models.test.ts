/** `models reload`: the command's ends, by what answers it. */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { askSidecar } from '../../../sidecar/commands/ask-sidecar.js';
import { models } from '../../../sidecar/commands/models.js';
import { loadConfig } from '../../../sidecar/config/config.js';
import { systemClock } from '../../../sidecar/lib/clock.js';

/** Runs it against a listener that answers so. */
async function run(
  t: Test,
  answer: (response: ServerResponse) => void,
  args: readonly string[] = ['m'],
): Promise<{ code: number; out: string; said: string }> {
  const server = createServer((_, response) => answer(response)).listen(0, '127.0.0.1');
  t.teardown(() => server.close());
  await once(server, 'listening');
  const loaded = loadConfig({ RA_OPERATORS_PORT: String((server.address() as AddressInfo).port) });
  if (loaded.kind === 'invalid') throw new Error(loaded.line);
  let [out, said] = ['', ''];
  const code = await models(loaded.config, ['reload', ...args], {
    clock: systemClock,
    terminal: { write: () => true },
    out: (text) => void (out += text),
    err: (text) => void (said += text),
  });
  return { code, out, said };
}

t.test('an answer that is cut off, at its head or within', async (t) => {
  const within = await run(t, (response) => {
    response.writeHead(200, { 'content-length': '100' });
    response.write('{"weight_version":"w"', () => response.destroy());
  });
  t.match(within, { code: 1, out: '', said: 'ra-sidecar: m was not reloaded: the answer was cut off\n' });
  const before = await run(t, (response) => response.destroy());
  t.match(before, { code: 1, out: '', said: /m was not reloaded: no sidecar answers at .* \(ECONNRESET\)/ });
});

t.test('an answer of something else', async (t) => {
  t.match(await run(t, (response) => response.end('hello')), { code: 1, said: /the answer is no JSON/ });
  t.match(await run(t, (response) => response.end('{}')), { code: 1, said: /no answer that this command knows/ });
  const endless = (response: ServerResponse): void => {
    response.on('drain', () => endless(response));
    while (response.write('x'.repeat(1 << 16)));
  };
  t.match(await run(t, endless), { code: 1, said: /was cut off/ });
});

t.test('a question with a bound is given up when nothing comes', async (t) => {
  const server = createServer(() => undefined).listen(0, '127.0.0.1');
  t.teardown(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const asked = await askSidecar({ host: '0.0.0.0', port }, { method: 'GET', path: '/keys', silenceMs: 10 });
  t.same(asked, { kind: 'none', why: `no sidecar answers at 127.0.0.1:${port} (silent for 10 ms)` });
});

t.test('a reload, in words and in JSON', async (t) => {
  const body = { model: 'm', weight_version: 'w', replicas: 2, file: '/f' };
  const answer = (response: ServerResponse): void => void response.end(JSON.stringify(body));
  t.same(await run(t, answer), { code: 0, out: 'm serves w from /f: 2 replicas loaded it\n', said: '' });
  const { out, said } = await run(t, answer, ['m', '--json', '--file', '/f']);
  t.same(JSON.parse(out), body);
  t.match(said, /a restart of the sidecar loads the file that the configuration names/);
});
