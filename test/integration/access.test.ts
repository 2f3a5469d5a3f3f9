/**
 * The sources of callers as an operator configures them, in a process: a gateway over a Unix socket, an HTTP
 * authorizer. no-content-access.test.ts shows that no secret or key of theirs leaves the sidecar.
 */
import { spawnSync } from 'node:child_process';
import { createServer } from 'node:http';
import { chmodSync, existsSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { hashKey } from '../../sidecar/access/key-file.js';
import { errorOf } from '../support/error-answer.js';
import { cases } from '../support/long-form.js';
import { RawConnection, type RawResponse } from '../support/raw-http.js';
import { shortDir } from '../support/short-dir.js';
import { CHAT, chatOnly, Sidecar, unloadedChat } from '../support/sidecar.js';

const MARK = 'kanarienvogel';
/** In another form than this sidecar’s keys, which the log would redact. */
const secretOf = (name: string): string => `${MARK}-${name}-`.padEnd(40, 'x');
const BODY = JSON.stringify({ model: CHAT, max_tokens: 2, messages: [{ role: 'user', content: 'Hello.' }] });

function as(secret: string, more: Readonly<Record<string, string>> = {}): Record<string, string> {
  return { 'Content-Type': 'application/json', Authorization: `Bearer ${secret}`, ...more };
}

function behind(secret: string, more: Readonly<Record<string, string>> = {}): Record<string, string> {
  return as(secret, { 'x-ra-account': 'globex', 'x-ra-key-id': 'key_g', 'x-ra-environment': 'development', ...more });
}

t.test('only a gateway over a Unix socket is served', async (t) => {
  const dir = shortDir(t);
  const socket = join(dir, 'ra.sock');
  const secretFile = join(dir, 'secrets');
  writeFileSync(secretFile, `# ${secretOf('comment')}\n${secretOf('old')}\n`);
  chmodSync(secretFile, 0o604);
  const config = {
    ...(await chatOnly(2)),
    listen: { tcp: false, socket, socketMode: '0600' },
    access: { mode: 'gateway' },
    gateway: { secretFile },
    log: { level: 'trace' },
  };
  // As a killed sidecar leaves it.
  const listens = `require('net').createServer().listen(${JSON.stringify(socket)}, () => process.kill(process.pid, 'SIGKILL'))`;
  spawnSync(process.execPath, ['-e', listens]);
  t.ok(existsSync(socket), 'the socket file of a process that was killed');

  const sidecar = await Sidecar.start(t, { stub: true, config });
  t.equal(statSync(socket).mode & 0o777, 0o600);
  t.match(await sidecar.logged('secret file is open'), {
    level: 40,
    file: secretFile,
    reason: 'other users can read it (mode 0604)',
  });
  t.notOk(
    sidecar.lines.some(({ event }) => event === 'listening'),
    'there is no port',
  );
  t.equal(sidecar.key, '', 'nor a development key, which would be useless');
  const ask = async (headers: Readonly<Record<string, string>>): Promise<RawResponse> => {
    const caller = await RawConnection.open(socket);
    const answer = await caller.request('POST', '/v1/chat/completions', headers, BODY).response();
    caller.close();
    return answer;
  };

  t.equal((await ask(behind(secretOf('old')))).status, 200);
  t.match(await sidecar.logged('request'), { account: 'globex', keyId: 'key_g', status: 200 });
  t.equal((await ask(behind(secretOf('new')))).status, 401);
  t.equal((await ask(behind(secretOf('comment')))).status, 401);

  // Rotated: both secrets for a while, then the new one alone; an invalid file changes nothing.
  const put = async (text: string, event: string): Promise<void> => {
    const count = sidecar.lines.filter((line) => line.event === event).length;
    writeFileSync(`${secretFile}.next`, text);
    renameSync(`${secretFile}.next`, secretFile);
    sidecar.child.kill('SIGHUP');
    await sidecar.logged(event, count + 1);
  };
  await put(`${secretOf('old')}\n${secretOf('new')}\n`, 'secrets read anew');
  for (const name of ['old', 'new']) t.equal((await ask(behind(secretOf(name)))).status, 200, name);
  await put(`${secretOf('new')}\n`, 'secrets read anew');
  t.equal((await ask(behind(secretOf('old')))).status, 401);
  const unusable = 'secrets cannot be read, the previous ones stay in force';
  await put(`${MARK} too short`, unusable);
  t.match(await sidecar.logged(unusable), { level: 50 });
  t.equal((await ask(behind(secretOf('new')))).status, 200);

  sidecar.child.kill('SIGTERM');
  t.same(await sidecar.exited(), { code: 0, signal: null });
  t.notOk(existsSync(socket), 'a sidecar that ends removes its socket file');
});

t.test('an HTTP authorizer that is stopped and started', async (t) => {
  const dir = shortDir(t);
  const at = join(dir, 'auth.sock');
  const secretFile = join(dir, 'secret');
  writeFileSync(secretFile, secretOf('ours'));
  const key = secretOf('key');
  let broken = false;
  let asked = 0;
  const authorizer = createServer((request, response) => {
    asked += 1;
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const question = JSON.parse(Buffer.concat(parts).toString()) as { keyHash: string };
      const known = question.keyHash === hashKey(key) && request.headers.authorization === `Bearer ${secretOf('ours')}`;
      const caller = { account: 'initech', keyId: 'key_i', models: [CHAT] };
      if (broken) response.writeHead(500).end(secretOf('fault'));
      else response.end(JSON.stringify(known ? { caller } : { denied: { code: 'invalid_api_key' } }));
    });
  });
  await new Promise<void>((resolve) => authorizer.listen(at, resolve));
  t.teardown(() => authorizer.close());
  t.teardown(() => authorizer.closeAllConnections());

  const sidecar = await Sidecar.start(t, {
    stub: true,
    config: {
      ...(await chatOnly(2)),
      access: { mode: 'authorizer' },
      authorizer: {
        url: 'http://authorizer/check',
        socket: at,
        secretFile,
        timeoutMs: 60_000,
        // Without a cache: each request shows the authorizer’s current answer.
        cache: { ttlMs: 0, deniedTtlMs: 0, staleMs: 0 },
        breaker: { failures: 2, openMs: 60_000 },
      },
      log: { level: 'trace' },
    },
  });
  const ask = async (secret: string): Promise<RawResponse> => {
    const caller = await RawConnection.open(sidecar.port);
    const answer = await caller.request('POST', '/v1/chat/completions', as(secret), BODY).response();
    caller.close();
    return answer;
  };
  const served = await ask(key);
  t.equal(served.status, 200);
  t.match(served.field('server-timing'), /^authorize;dur=/);
  t.match(await sidecar.logged('request'), { account: 'initech', keyId: 'key_i' });
  t.equal(errorOf(await ask(secretOf('unknown'))).code, 'invalid_api_key');
  t.equal((await ask(`${key}x`)).status, 401);

  broken = true;
  // The same key again is the same failure.
  for (const [secret, seconds] of [
    [key, '1'],
    [key, '1'],
    [secretOf('unknown'), '60'],
  ] as const) {
    const refused = await ask(secret);
    t.equal(refused.status, 503);
    t.equal(errorOf(refused).code, 'gateway_unavailable');
    t.equal(refused.field('retry-after'), seconds);
  }
  t.match(await sidecar.logged('authorizer is left alone'), { reason: 'status 500' });
  broken = false;
  const before = asked;
  t.equal((await ask(key)).status, 503, 'it is not asked while the breaker is open');
  t.equal(asked, before);
});

t.test('an invalid configuration ends the start with one line that has no secret', async (t) => {
  const dir = shortDir(t);
  const file = join(dir, 'secret');
  writeFileSync(file, `${MARK} is no secret`);
  const all = [
    [{ gateway: { secretFile: file } }, /ra-sidecar: secrets: line 1 is not 32 to 256 visible ASCII characters/],
    [{ gateway: { secretFile: join(dir, 'absent') } }, /ra-sidecar: secrets: does not exist /],
    [
      { listen: { host: '192.0.2.1', port: 0 } },
      /192\.0\.2\.1:0: EADDRNOTAVAIL \(set by listen\.host and listen\.port\)/,
    ],
    [
      { listen: { port: 0, socket: file } },
      /ra-sidecar: cannot listen on .*: the path is a file that is not a socket \(set by listen\.socket\)/,
    ],
  ] as const;
  // A secret and an address; tests in process have the others.
  for (const [config, line] of cases<(typeof all)[number]>(all, (_, index) => index === 0 || index === 3)) {
    const sidecar = await Sidecar.launch(t, { stub: true, config: { ...(await chatOnly(1)), ...config } });
    t.equal((await sidecar.exited()).code, 1);
    t.match(sidecar.printed, line);
    t.notMatch(sidecar.printed, MARK);
  }
});

t.test('a development key works only on a sidecar that creates one', async (t) => {
  const dataDir = t.testdir();
  const statusOf = async (sidecar: Sidecar, key: string): Promise<number> =>
    (await fetch(`${sidecar.base}/models`, { headers: { Authorization: `Bearer ${key}` } })).status;
  const first = await Sidecar.start(t, { stub: true, config: { ...(await unloadedChat()), dataDir } });
  t.equal(await statusOf(first, first.key), 200);
  first.child.kill('SIGTERM');
  await first.exited();

  const listen = { host: '0.0.0.0', port: 0 };
  const open = await Sidecar.start(t, { stub: true, config: { ...(await unloadedChat()), dataDir, listen } });
  t.equal(open.key, '');
  t.match(await open.logged('keys loaded'), { count: 0 });
  t.equal(await statusOf(open, first.key), 401, 'the earlier one is still in the file');
});
