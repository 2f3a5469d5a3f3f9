/** HTTP’s special cases at the whole sidecar, over raw sockets. Single parts are tested in test/sidecar/http. */
import t from 'tap';
import { holdError } from '../support/error-answer.js';
import { chatBody, InProcess, JSON_HEADERS } from '../support/in-process.js';
import type { RawResponse } from '../support/raw-http.js';

const MIB = 1024 * 1024;
const CHAT = '/v1/chat/completions';
const PATHS = [CHAT, '/v1/decisions', '/v1/systemone'];
const REFUSED = { type: 'invalid_request_error', retry: false } as const;
const BAD_REQUEST = { ...REFUSED, status: 400, code: 'bad_request' } as const;
const TOO_LARGE = { ...REFUSED, status: 413, code: 'payload_too_large' } as const;

t.test('HTTP', async (t) => {
  const sidecar = await InProcess.start(t, { models: [{ id: 'chat', kind: 'chat' }] });
  const body = JSON.stringify(chatBody('chat', 'echo'));
  const post = (path: string, headers: Readonly<Record<string, string>>): Promise<RawResponse> =>
    sidecar.ask('POST', path, { Authorization: JSON_HEADERS.Authorization, ...headers }, body);
  const head = (path: string, fields: Readonly<Record<string, string | number>>): string => {
    const lines = Object.entries({ ...JSON_HEADERS, ...fields }).map(([name, value]) => `${name}: ${value}\r\n`);
    return `POST ${path} HTTP/1.1\r\nHost: a\r\n${lines.join('')}\r\n`;
  };

  // Answered some seconds later, at the end of this test.
  const extension = (await sidecar.connect()).send(
    `${head(CHAT, { 'Transfer-Encoding': 'chunked' })}5;a=b\r\nhello\r\n0\r\n\r\n`,
  );
  const extended = extension.response();

  await t.test('no load report, unless it is configured', async (t) => {
    const answer = await post(CHAT, { ...JSON_HEADERS, 'endpoint-load-metrics-format': 'json' });
    t.equal(answer.status, 200);
    t.equal(answer.field('endpoint-load-metrics'), undefined);
  });

  await t.test('content types, and encoded bodies', async (t) => {
    for (const type of ['Application/JSON', 'application/json;charset=utf-8', 'application/json ; charset=UTF-8'])
      t.equal((await post(CHAT, { 'Content-Type': type })).status, 200, type);
    for (const coding of ['Identity', ''])
      t.equal((await post(CHAT, { ...JSON_HEADERS, 'Content-Encoding': coding })).status, 200, coding);
    const wrong = ['', 'text/plain', 'application/jsonx', 'application/json+x', 'multipart/form-data; boundary=a'].map(
      (type): Record<string, string> => ({ 'Content-Type': type }),
    );
    const encoded = ['gzip', 'identity, gzip'].map((coding) => ({ ...JSON_HEADERS, 'Content-Encoding': coding }));
    for (const path of PATHS)
      for (const headers of [{}, ...wrong, ...encoded]) {
        const name = `${JSON.stringify(headers)} at ${path}`;
        holdError(t, name, await post(path, headers), { ...BAD_REQUEST, status: 415 });
      }
  });

  await t.test('an offer of HTTP/2, as Java’s client makes with each request', async (t) => {
    const caller = await sidecar.connect();
    const offer = { Connection: 'Upgrade, HTTP2-Settings', Upgrade: 'h2c', 'HTTP2-Settings': 'AAEAAEAAAAIAAAAB' };
    for (let i = 0; i < 2; i += 1) {
      caller.send(head(CHAT, { ...offer, 'Content-Length': body.length }));
      caller.send(body);
      t.equal((await caller.response()).status, 200, 'over HTTP/1.1, and the connection serves again');
    }
  });

  await t.test('Content-Length: none, too short, too long', async (t) => {
    for (const path of PATHS)
      holdError(t, path, await (await sidecar.connect()).send(head(path, {})).response(), BAD_REQUEST);
    const short = (await sidecar.connect()).send(head(CHAT, { 'Content-Length': 20 }) + body.slice(0, 20));
    holdError(t, 'too short', await short.response(), BAD_REQUEST);
    short.send(`${body.slice(20)}\r\n\r\n`);
    t.match(await short.rest(), /^$|^HTTP\/1\.1 (400|505) /, 'the bytes after the body are not read as a request');
    const long = (await sidecar.connect()).send(head(CHAT, { 'Content-Length': 10_000 }) + body);
    long.socket.end();
    await sidecar.seen('request', ({ status, route }) => status === 499 && route === 'chat');
    t.equal(await long.rest(), '', 'a body that never ends is not answered');
  });

  await t.test('decision bodies over 1 MiB are refused while they are read', async (t) => {
    const spaces = ' '.repeat(MIB);
    for (const path of PATHS.slice(1)) {
      holdError(t, `1 MiB is read, ${path}`, await sidecar.ask('POST', path, JSON_HEADERS, spaces), BAD_REQUEST);
      const declared = (await sidecar.connect()).send(head(path, { 'Content-Length': MIB + 1 }));
      holdError(t, `refused by what is declared, ${path}`, await declared.response(), TOO_LARGE);
      const counted = (await sidecar.connect()).send(head(path, { 'Transfer-Encoding': 'chunked' }));
      // The body does not end: the answer cannot have waited for it.
      counted.send(`${MIB.toString(16)}\r\n${spaces}\r\n1\r\n \r\n`);
      holdError(t, `refused by what was read, ${path}`, await counted.response(), TOO_LARGE);
    }
  });

  await t.test('a chunk extension', async (t) => {
    holdError(t, 'the library waits for bytes that never come', await extended, BAD_REQUEST);
  });
});
