/** Manipulated paths, Unicode and header values at the whole sidecar: none changes who requests what. */
import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import t from 'tap';
import { KeyFileIdentity } from '../../sidecar/access/key-identity.js';
import { chatBody, decisionBody, FakeIdentity, InProcess, JSON_HEADERS } from '../support/in-process.js';
import { makeKey } from '../support/keys.js';

const CHAT = '/v1/chat/completions';

t.test('tricks', async (t) => {
  const own = makeKey({ entitlements: { development: { models: ['m'] } } });
  const keys = new KeyFileIdentity({ version: 1, keys: [own.stored] }, 'development');
  const sidecar = await InProcess.start(t, {
    models: [
      { id: 'm', kind: 'chat' },
      { id: 'secret', kind: 'chat' },
      { id: 'decide', kind: 'decision' },
    ],
    identity: new FakeIdentity(keys),
  });
  const headers = { ...JSON_HEADERS, Authorization: `Bearer ${own.key}` };
  /** Sends bytes and returns all that comes back until both sides are silent. */
  const exchange = async (bytes: string | Uint8Array): Promise<string> => {
    const caller = await sidecar.connect();
    caller.send(bytes);
    caller.socket.end();
    return caller.rest();
  };
  const statusOf = (answer: string): number => Number(/^HTTP\/1\.1 (\d{3})/.exec(answer)?.[1] ?? 0);

  await t.test('a path is compared byte by byte, without any normalization', async (t) => {
    const known = ['/v1/models', '/metrics', '/admission'];
    const spellings = known.flatMap((path) => [
      `/.${path}`,
      `/x/..${path}`,
      `/%2e${path}`,
      `/x/%2e%2e${path}`,
      `/x%2f..${path}`,
      `/${path}`,
      `\\${path}`,
      path.replace(/\//g, '//'),
      path.replace(/\//g, '/./'),
      path.replace(/\//g, '%2f'),
      path.replace(/\//g, '%5c'),
      `${path}/.`,
      `${path}/..${path}`,
      `${path}%00`,
      `${path}%00.json`,
      `${path}%20`,
      `${path}%3f`,
      `${path}%23`,
      `${path};x=1`,
      `${path}#x`,
      `${path}.json`,
      `${path}%0d%0aX-Ra-Account:%20evil`,
      path.replace('m', '%6d'),
      path.replace('m', '%256d'),
      path.replace('m', 'M'),
      path.replace('m', 'ｍ'),
      path.replace('s', '\u0455'),
      `http://test${path}`,
      `//test${path}`,
      `${path}/${'a'.repeat(3000)}`,
    ]);
    for (const spelling of spellings) {
      const answer = await exchange(
        `GET ${spelling} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer ${own.key}\r\n\r\n`,
      );
      // 400 and 505 come from uWS itself, for a target without a leading slash.
      t.ok([400, 404, 505].includes(statusOf(answer)), `${encodeURI(spelling.slice(0, 60))}: ${statusOf(answer)}`);
    }
    for (const target of ['*', '/v1/models\0', '/v1/models\tx', '', '/v1/models x', `/${'a'.repeat(5000)}`]) {
      const answer = await exchange(`GET ${target} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer ${own.key}\r\n\r\n`);
      t.not(statusOf(answer), 200, JSON.stringify(target.slice(0, 20)));
    }
    t.equal(
      statusOf(await exchange(`GET /v1/models?x=/../metrics HTTP/1.1\r\nHost: a\r\n\r\n`)),
      401,
      'a query is not part of the path',
    );
  });

  await t.test('a model is found only by its exact id', async (t) => {
    t.equal((await sidecar.ask('POST', CHAT, headers, JSON.stringify(chatBody('m', 'echo')))).status, 200);
    sidecar.spool.records.splice(0);
    const lookalikes = [
      'M',
      'm ',
      ' m',
      'm\0',
      'm\u200b',
      'm\u0301',
      'ｍ',
      '\ufeffm',
      'm\u2028',
      'ⅿ',
      'm/',
      'm/../m',
      'm?',
    ];
    const forbidden = ['secret', 'Secret', 'ѕecret', 'secre\u0074\u200d', '__proto__', 'constructor', 'm,secret'];
    for (const model of [...lookalikes, ...forbidden]) {
      for (const [path, body] of [
        [CHAT, chatBody(model, 'echo')],
        ['/v1/decisions', decisionBody(model)],
      ] as const) {
        const { status } = await sidecar.ask('POST', path, headers, JSON.stringify(body));
        t.ok([400, 403].includes(status), `${encodeURI(model)}: ${status}`);
      }
    }
    // Escapes are another spelling of the same id.
    const escaped = JSON.stringify(chatBody('m', 'echo')).replace('"m"', '"\\u006d"');
    t.equal((await sidecar.ask('POST', CHAT, headers, escaped)).status, 200);
    t.equal(sidecar.spool.records.filter(({ kind }) => kind === 'close').length, 1);
  });

  await t.test('x-request-id is returned unchanged or replaced', async (t) => {
    const answered = async (field: string): Promise<string> =>
      exchange(Buffer.from(`GET /v1/models HTTP/1.1\r\nHost: a\r\nx-request-id: ${field}\r\n\r\n`, 'latin1'));
    t.match(await answered('my.id:1_2-3'), /\r\nx-request-id: my\.id:1_2-3\r\n/i);
    for (const field of [
      ...['a\r b: c', 'a\n b: c', 'a%0d%0aSet-Cookie: evil=1', 'a\\r\\nSet-Cookie: evil=1'],
      ...['a\u0085Set-Cookie: evil=1', 'a\xe5\x98\x8a\xe5\x98\x8dSet-Cookie: evil=1', 'a evil=1'],
      ...[`evil=1${'a'.repeat(129)}`, 'evil=1;a', '<script>evil=1</script>'],
    ]) {
      const answer = await answered(field);
      t.notMatch(answer, /evil=1|set-cookie/i, encodeURI(field.slice(0, 30)));
      const ids = [...answer.matchAll(/^x-request-id: (.*)$/gim)];
      if (statusOf(answer) === 401) t.match(ids[0]?.[1], /^[0-9a-f-]{36}\r?$/, 'a fresh one');
      else t.ok([0, 400].includes(statusOf(answer)) && ids.length === 0, 'or uWS has refused or cut it');
    }
  });
});

t.test('a web page that may call the public listener may not read the operators’ listener', async (t) => {
  const origin = 'https://app.example';
  const sidecar = await InProcess.start(t, {
    models: [{ id: 'm', kind: 'chat' }],
    config: { cors: { origins: ['*'] } },
  });
  const allowed = async (port: number, path: string): Promise<string | null> => {
    const answer = await fetch(`http://127.0.0.1:${port}${path}`, { headers: { origin } });
    await answer.body?.cancel();
    return answer.headers.get('access-control-allow-origin');
  };
  t.not(await allowed(sidecar.port, '/healthz'), null);
  for (const path of ['/admission', '/keys', '/metrics', '/readyz'])
    t.equal(await allowed(sidecar.app.operatorsPort, path), null, path);
});

t.test(
  'a page whose name was made to resolve to this machine reads and changes nothing at the operators’ listener',
  async (t) => {
    const models = [{ id: 'm', kind: 'chat' }] as const;
    const sidecar = await InProcess.start(t, { models });
    const secret = 'o'.repeat(32);
    const secretFile = join(t.testdir({ secrets: `${secret}\n` }), 'secrets');
    const withKey = await InProcess.start(t, { models, config: { operators: { port: 0, secretFile } } });
    const ask = async (
      port: number,
      method: string,
      path: string,
      host: string,
      key?: string,
    ): Promise<number | undefined> => {
      const authorization = key === undefined ? {} : { authorization: `Bearer ${key}` };
      const asked = request({
        port,
        method,
        path,
        headers: { host, 'content-type': 'application/json', ...authorization },
      });
      asked.end(method === 'POST' ? JSON.stringify({ model: 'no-such-model' }) : undefined);
      const [response] = (await once(asked, 'response')) as [IncomingMessage];
      response.destroy();
      return response.statusCode;
    };
    const attacker = 'attacker.example';
    for (const [path, method, status] of [
      ['/healthz', 'GET', 200],
      ['/health', 'GET', 200],
      ['/readyz', 'GET', 200],
      ['/metrics', 'GET', 200],
      ['/metrics', 'HEAD', 200],
      ['/admission', 'GET', 200],
      ['/keys', 'GET', 404],
      ['/console', 'GET', 200],
      ['/console/events', 'GET', 200],
      ['/models/reload', 'POST', 404],
    ] as const) {
      const port = sidecar.app.operatorsPort;
      for (const host of [attacker, `${attacker}:9090`, `127.0.0.1.${attacker}`])
        t.equal(await ask(port, method, path, host), 400, `${method} ${path} of ${host}`);
      for (const host of ['127.0.0.1:9090', 'localhost', '[::1]:9090'])
        t.equal(await ask(port, method, path, host), status, `${method} ${path} of ${host}`);
      t.equal(await ask(withKey.app.operatorsPort, method, path, attacker, secret), status, `${path} with a key`);
    }
  },
);
