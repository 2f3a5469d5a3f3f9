/** HTTP’s special cases at the whole sidecar, over raw sockets. Single parts are tested in test/sidecar/http. */
import { readFile } from 'node:fs/promises';
import t from 'tap';
import { errorOf, holdError } from '../support/error-answer.js';
import { RawConnection, type RawResponse } from '../support/raw-http.js';
import { CHAT, DECIDE, Sidecar } from '../support/sidecar.js';

const ORIGIN = 'https://app.example';
const MIB = 1024 * 1024;
const CHAT_PATH = '/v1/chat/completions';
const DECISION_PATHS = ['/v1/decisions', '/v1/systemone'];
const REFUSED = { type: 'invalid_request_error', retry: false } as const;
const BAD_REQUEST = { ...REFUSED, status: 400, code: 'bad_request' } as const;
const WRONG_METHOD = { ...REFUSED, status: 405, code: 'bad_request' } as const;
const TOO_LARGE = { ...REFUSED, status: 413, code: 'payload_too_large' } as const;

t.test('HTTP', async (t) => {
  const sidecar = await Sidecar.start(t, { stub: true, config: { cors: { origins: [ORIGIN] } } });
  const auth = { Authorization: `Bearer ${sidecar.key}` };
  const json = { ...auth, 'Content-Type': 'application/json' };
  const body = JSON.stringify({ model: CHAT, max_tokens: 2, messages: [{ role: 'user', content: 'Grüße, 世界!' }] });
  const connect = async (): Promise<RawConnection> => {
    const connection = await RawConnection.open(sidecar.port);
    t.teardown(() => connection.close());
    return connection;
  };
  const ask = async (
    method: string,
    path: string,
    headers: Readonly<Record<string, string>> = {},
    content?: string,
  ): Promise<RawResponse> =>
    (await connect()).request(method, path, headers, content).response({ head: method === 'HEAD' });
  const chunked = (text: string, size: number): string => {
    const bytes = Buffer.from(text);
    const parts: string[] = [];
    for (let at = 0; at < bytes.length; at += size) {
      const part = bytes.subarray(at, at + size);
      parts.push(`${part.length.toString(16)}\r\n${part.toString('latin1')}\r\n`);
    }
    return parts.join('');
  };
  const head = (path: string, fields: Readonly<Record<string, string | number>>): string =>
    `POST ${path} HTTP/1.1\r\nHost: a\r\n${Object.entries({ ...json, ...fields })
      .map(([name, value]) => `${name}: ${value}\r\n`)
      .join('')}\r\n`;

  // Answered some seconds later, at the end of this test.
  const extension = (await connect()).send(
    `${head(CHAT_PATH, { 'Transfer-Encoding': 'chunked' })}5;a=b\r\nhello\r\n0\r\n\r\n`,
  );
  const extended = extension.response();

  await t.test('no load report, unless it is configured', async (t) => {
    const asking = { ...json, 'endpoint-load-metrics-format': 'json' };
    for (const [method, path] of [
      ['GET', '/healthz'],
      ['POST', CHAT_PATH],
    ] as const) {
      const answer = await ask(method, path, asking, method === 'POST' ? body : undefined);
      t.equal(answer.status, 200);
      t.equal(answer.field('endpoint-load-metrics'), undefined, path);
    }
  });

  await t.test('OPTIONS and other methods', async (t) => {
    for (const [path, allow] of [
      ['/v1/models', 'GET, HEAD, OPTIONS'],
      [CHAT_PATH, 'POST, OPTIONS'],
      ['/v1/decisions', 'POST, OPTIONS'],
      ['/v1/systemone', 'POST, OPTIONS'],
      ['/healthz', 'GET, HEAD, OPTIONS'],
    ] as const) {
      const options = await ask('OPTIONS', path);
      t.equal(options.status, 204, path);
      t.equal(options.field('allow'), allow, path);
      for (const method of ['PUT', 'PATCH', 'DELETE', 'PROPFIND', allow.startsWith('GET') ? 'POST' : 'GET']) {
        const refused = await ask(method, path, json, method === 'GET' ? undefined : '{}');
        holdError(t, `${method} ${path}`, refused, WRONG_METHOD);
        t.equal(refused.field('allow'), allow, path);
      }
    }
    t.equal((await ask('OPTIONS', '/v1/nothing')).status, 404);
  });

  await t.test('content types', async (t) => {
    for (const type of [
      'application/json',
      'Application/JSON',
      'application/json;charset=utf-8',
      'application/json ; charset=UTF-8',
    ]) {
      t.equal((await ask('POST', CHAT_PATH, { ...auth, 'Content-Type': type }, body)).status, 200, type);
    }
    for (const path of [CHAT_PATH, ...DECISION_PATHS]) {
      holdError(t, `none at ${path}`, await ask('POST', path, auth, body), { ...BAD_REQUEST, status: 415 });
      for (const type of [
        '',
        'text/plain',
        'application/jsonx',
        'application/json+x',
        'json',
        'multipart/form-data; boundary=a',
      ]) {
        const refused = await ask('POST', path, { ...auth, 'Content-Type': type }, body);
        holdError(t, `${type} at ${path}`, refused, { ...BAD_REQUEST, status: 415 });
      }
    }
  });

  await t.test('encoded bodies', async (t) => {
    const json = { ...auth, 'Content-Type': 'application/json' };
    for (const path of [CHAT_PATH, ...DECISION_PATHS])
      for (const coding of ['gzip', 'br', 'identity, gzip']) {
        const refused = await ask('POST', path, { ...json, 'Content-Encoding': coding }, body);
        holdError(t, `${coding} at ${path}`, refused, { ...BAD_REQUEST, status: 415 });
      }
    for (const coding of ['Identity', ''])
      t.equal((await ask('POST', CHAT_PATH, { ...json, 'Content-Encoding': coding }, body)).status, 200, coding);
  });

  await t.test('an offer of HTTP/2, as Java’s client makes with each request', async (t) => {
    const caller = await connect();
    const offer = { Connection: 'Upgrade, HTTP2-Settings', Upgrade: 'h2c', 'HTTP2-Settings': 'AAEAAEAAAAIAAAAB' };
    for (let i = 0; i < 2; i += 1) {
      caller.send(head(CHAT_PATH, { ...offer, 'Content-Length': Buffer.byteLength(body) }));
      caller.send(body);
      const answer = await caller.response();
      t.equal(answer.status, 200, 'over HTTP/1.1, and the connection serves again');
    }
  });

  await t.test('Content-Length: none, too short, too long, two', async (t) => {
    for (const path of [CHAT_PATH, ...DECISION_PATHS]) {
      holdError(t, `none at ${path}`, await (await connect()).send(head(path, {})).response(), BAD_REQUEST);
    }
    const short = (await connect()).send(head(CHAT_PATH, { 'Content-Length': 20 }) + body.slice(0, 20));
    const cut = await short.response();
    holdError(t, 'too short', cut, BAD_REQUEST);
    t.equal(errorOf(cut).message, 'the body must be JSON');
    short.send(body.slice(20) + '\r\n\r\n');
    t.match(await short.rest(), /^HTTP\/1\.1 (400|505) /, 'the bytes after the body are not read as a request');
    // In one packet uWS reads the rest as a request before it has answered the first, and closes the connection.
    const packed = (await connect()).send(head(CHAT_PATH, { 'Content-Length': 20 }) + body);
    t.match(await packed.rest(), /^HTTP\/1\.1 (400|505) /);

    const long = (await connect()).send(head(CHAT_PATH, { 'Content-Length': 10_000 }) + body);
    long.socket.end();
    await sidecar.logged('request', 1, ({ status, route }) => status === 499 && route === 'chat');
    t.equal(await long.rest(), '', 'a body that never ends is not answered');

    const two = (await connect()).send(
      `POST ${CHAT_PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} `,
    );
    holdError(t, 'two', await two.response(), BAD_REQUEST);
    await two.rest();
    const equal = (await connect()).send(
      `POST ${CHAT_PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}`,
    );
    holdError(t, 'two that are equal', await equal.response(), BAD_REQUEST);
  });

  await t.test('CORS', async (t) => {
    const preflight = await ask('OPTIONS', CHAT_PATH, {
      Origin: ORIGIN,
      'Access-Control-Request-Method': 'POST',
      'Access-Control-Request-Headers': 'authorization, content-type, idempotency-key, x-stainless-os, x-other',
    });
    t.equal(preflight.status, 204);
    t.equal(preflight.field('access-control-allow-origin'), ORIGIN);
    t.equal(preflight.field('access-control-allow-methods'), 'POST, OPTIONS');
    t.equal(
      preflight.field('access-control-allow-headers'),
      'authorization, content-type, idempotency-key, x-stainless-os',
    );
    const stream = JSON.stringify({ ...(JSON.parse(body) as object), stream: true });
    for (const [name, content, status] of [
      ['whole', body, 200],
      ['streamed', stream, 200],
      ['refused', '{}', 400],
    ] as const) {
      const from = (origin: string): Promise<RawResponse> =>
        ask('POST', CHAT_PATH, { ...json, Origin: origin }, content);
      const ours = await from(ORIGIN);
      t.equal(ours.status, status, name);
      t.equal(ours.field('access-control-allow-origin'), ORIGIN, name);
      t.equal(ours.field('vary'), 'Origin', name);
      t.equal(
        ours.field('access-control-expose-headers'),
        status === 200 ? 'x-request-id, Server-Timing' : 'x-request-id',
        name,
      );
      t.equal((await from('https://other.example')).field('access-control-allow-origin'), undefined, name);
    }
  });

  await t.test('decision bodies over 1 MiB are refused while they are read', async (t) => {
    const padded = (bytes: number): string => ' '.repeat(bytes);
    for (const path of DECISION_PATHS) {
      const exact = await ask('POST', path, json, padded(MIB));
      holdError(t, `1 MiB is read, ${path}`, exact, BAD_REQUEST);
      const declared = (await connect()).send(head(path, { 'Content-Length': MIB + 1 }));
      holdError(t, `refused by what is declared, ${path}`, await declared.response(), TOO_LARGE);
      const counted = (await connect()).send(head(path, { 'Transfer-Encoding': 'chunked' }));
      // The body does not end: the answer cannot have waited for it.
      counted.send(chunked(padded(MIB), MIB)).send('1\r\n \r\n');
      holdError(t, `refused by what was read, ${path}`, await counted.response(), TOO_LARGE);
      counted.close();
    }
    const small = { model: DECIDE, input: padded(MIB - 200), questions: [] };
    holdError(
      t,
      'the limit counts bytes, not chunks',
      await ask('POST', '/v1/decisions', json, JSON.stringify(small)),
      BAD_REQUEST,
    );
  });

  await t.test('and use almost no memory, however long they are', async (t) => {
    const before = await peakBytes(sidecar.child.pid);
    const callers = await Promise.all(Array.from({ length: 8 }, connect));
    const block = Buffer.from(chunked(' '.repeat(MIB), MIB));
    await Promise.all(
      callers.map(async (caller, i) => {
        caller.send(head(DECISION_PATHS[i % 2] ?? '', { 'Transfer-Encoding': 'chunked' }));
        for (let sent = 0; sent < 32; sent += 1) await written(caller, block);
        holdError(t, `${i}`, await caller.response(), TOO_LARGE);
        caller.close();
      }),
    );
    const grown = (await peakBytes(sidecar.child.pid)) - before;
    t.ok(grown < 96 * MIB, '256 MiB were sent', { grownMiB: Math.round(grown / MIB) });
    t.comment(`peak memory grew by ${Math.round(grown / MIB)} MiB`);
  });

  await t.test('a chunk extension', async (t) => {
    holdError(t, 'the library waits for bytes that never come', await extended, BAD_REQUEST);
  });
});

/** The most memory that a process ever had resident. */
async function peakBytes(pid: number | undefined): Promise<number> {
  const status = await readFile(`/proc/${pid ?? 0}/status`, 'utf8');
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}

/** Sends a block and waits until the kernel has accepted it; rejects if the connection is closed. */
function written({ socket }: RawConnection, block: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.write(block, (error) => {
      if (error) reject(error);
      else resolve();
    });
  });
}
