import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { createServer as createNetServer } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { Server, type Handler } from '../../../sidecar/http/server.js';
import { shortDir } from '../../support/short-dir.js';

const echo: Handler = async (exchange) => {
  const body = await exchange.body(1000);
  const text = body.kind === 'body' ? Buffer.from(body.bytes ?? []).toString() : body.kind;
  exchange.reply({ status: 200, body: JSON.stringify({ text, address: exchange.head.address }) });
};

interface Owner {
  teardown(fn: () => Promise<void>): void;
}

function server(t: Owner): Server {
  const made = new Server({
    routes: { '/': { POST: echo } },
    origins: [],
    clock: systemClock,
    limits: { totalBytes: 1 << 20 },
    onFault: () => undefined,
  });
  t.teardown(() => made.close());
  return made;
}

/** The answer to a client of Node’s own, over a socket or a port. */
function ask(where: { socketPath: string } | { port: number }): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const asking = request({ ...where, method: 'POST', path: '/', agent: false }, (response) => {
      const parts: Buffer[] = [];
      response.on('data', (part: Buffer) => parts.push(part));
      response.on('end', () => resolve(JSON.parse(Buffer.concat(parts).toString())));
    });
    asking.on('error', reject);
    asking.end('hello');
  });
}

t.test('a socket, a port, or both', async (t) => {
  const path = join(shortDir(t), 'ra.sock');
  const both = server(t);
  await both.listenUnix(path, 0o660);
  const { port } = await both.listen('127.0.0.1', 0);
  t.equal(statSync(path).mode & 0o777, 0o660);
  t.same(await ask({ socketPath: path }), { text: 'hello', address: '' });
  t.same(await ask({ port }), { text: 'hello', address: '127.0.0.1' });
  await t.rejects(both.listenUnix(`${path}2`, 0o600), { message: 'a server listens once' });
  await both.close();
  t.equal(existsSync(path), false, 'the file is removed with the server');
  await t.rejects(ask({ socketPath: path }));

  const alone = server(t);
  await alone.listenUnix(path, 0o600);
  t.equal(statSync(path).mode & 0o777, 0o600);
  t.same(await ask({ socketPath: path }), { text: 'hello', address: '' });
});

t.test('existing files at the path', async (t) => {
  const dir = shortDir(t);
  const file = join(dir, 'file');
  writeFileSync(file, 'precious');
  await t.rejects(server(t).listenUnix(file, 0o600), { message: /not a socket/ });
  t.equal(readFileSync(file, 'utf8'), 'precious');

  const path = join(dir, 'ra.sock');
  const first = server(t);
  await first.listenUnix(path, 0o600);
  await t.rejects(server(t).listenUnix(path, 0o600), { message: /another process does/ });
  t.same(await ask({ socketPath: path }), { text: 'hello', address: '' }, 'the first one still answers');

  const stale = join(dir, 'stale.sock');
  const code = `require('net').createServer().listen(${JSON.stringify(stale)}, () => process.kill(process.pid, 'SIGKILL'))`;
  t.equal(spawnSync(process.execPath, ['-e', code]).signal, 'SIGKILL');
  t.ok(statSync(stale).isSocket(), 'a killed process leaves its socket file');
  await server(t).listenUnix(stale, 0o600);
  t.same(await ask({ socketPath: stale }), { text: 'hello', address: '' });

  await t.rejects(server(t).listenUnix(join(dir, 'nowhere', 'ra.sock'), 0o600), {
    message: /^cannot listen on .*: its folder cannot be written \(ENOENT\)$/,
  });
  await t.rejects(server(t).listenUnix(join(dir, 'x'.repeat(120)), 0o600), {
    message: /^cannot listen on .*: the path is longer than 107 bytes$/,
  });
});

t.test('a successor’s socket is not removed', async (t) => {
  const dir = shortDir(t);
  const path = join(dir, 'ra.sock');
  const first = server(t);
  await first.listenUnix(path, 0o600);
  const second = createNetServer();
  t.teardown(() => second.close());
  rmSync(path);
  await new Promise<void>((resolve) => second.listen(path, resolve));
  await first.close();
  t.equal(existsSync(path), true);
});

t.test('a file that cannot be removed does not prevent a server from closing', async (t) => {
  const dir = join(shortDir(t), 'dir');
  mkdirSync(dir);
  const path = join(dir, 'ra.sock');
  const made = server(t);
  await made.listenUnix(path, 0o600);
  renameSync(dir, `${dir}2`);
  symlinkSync(dir, dir);
  t.throws(() => statSync(path), { code: 'ELOOP' });
  await made.close();
  await t.rejects(ask({ socketPath: join(`${dir}2`, 'ra.sock') }), 'it is closed');
});
