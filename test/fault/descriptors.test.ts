/** A sidecar with few file descriptors: idle connections leave a reserve, and a child that cannot be forked waits. */
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { Agent, request, type IncomingHttpHeaders, type RequestOptions } from 'node:http';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import t, { type Test } from 'tap';
import { SHORT } from '../support/open-stream.js';
import { childrenOf, eventually, usedCpuMs } from '../support/processes.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** The sidecar’s `ulimit -n`; a service manager’s default is 1024. */
const OPEN_FILES = 256;

/** Several times the limit. */
const IDLE = 600;

/** The time over which the sidecar’s processor time is measured, ms. */
const WATCHED_MS = 1000;

/** The most of it. An accept loop that spins on EMFILE uses all of a core, an idle sidecar a hundredth. */
const MAX_CPU_MS = 200;

/** Opens connections that send nothing. Resolves with the number of refused ones, when each is refused or accepted. */
async function idle(t: Test, sidecar: Sidecar, count: number): Promise<{ readonly refused: () => number }> {
  let refused = 0;
  const sockets: Socket[] = [];
  t.teardown(() => sockets.forEach((socket) => socket.destroy()));
  await Promise.all(
    Array.from({ length: count }, async () => {
      const socket = connect(sidecar.port, '127.0.0.1');
      sockets.push(socket);
      socket.on('error', () => undefined);
      socket.once('close', () => (refused += 1));
      await new Promise<void>((resolve) => socket.once('connect', resolve).once('close', () => resolve()));
    }),
  );
  return { refused: () => refused };
}

async function usedMeanwhile(pid: number): Promise<number> {
  const before = usedCpuMs(pid);
  const from = performance.now();
  await eventually('the time over', () => performance.now() - from > WATCHED_MS);
  return usedCpuMs(pid) - before;
}

/**
 * Rejects if the process goes on to use {@link MAX_CPU_MS} and more. At first it may still take or close connections that
 * the kernel has taken, which is work on a slow machine; a loop that spins does not end.
 */
async function rests(pid: number): Promise<void> {
  const what = `less than ${MAX_CPU_MS} ms of processor time in ${WATCHED_MS} ms`;
  await eventually(what, async () => (await usedMeanwhile(pid)) < MAX_CPU_MS);
}

/** The prompt host of short bodies. */
function shortHost(sidecar: Sidecar): number {
  const found = childrenOf(sidecar.pid).find(({ command }) => /host\.js short( |$)/.test(command));
  if (!found) throw new Error('there is no prompt host');
  return found.pid;
}

t.test(
  'idle connections leave descriptors for children and operators, and the accept loop does not spin',
  async (t) => {
    const sidecar = await Sidecar.start(t, { stub: true, config: await chatOnly(1), openFiles: OPEN_FILES });
    const connections = await idle(t, sidecar, IDLE);
    await rests(sidecar.pid);
    await eventually('those past the bound are closed', () => connections.refused() > IDLE - OPEN_FILES);
    const counted = await sidecar.metric('ra_sidecar_connections_refused_total', { listener: 'public' });
    t.ok(counted > IDLE - OPEN_FILES, 'by that bound');
    t.match(await sidecar.logged('connections refused'), { reason: /^public: / });

    const host = shortHost(sidecar);
    process.kill(host, 'SIGKILL');
    process.kill(sidecar.enginePid(CHAT), 'SIGKILL');
    await sidecar.logged('prompt host restarts');
    await sidecar.logged('engine ready', 2);
    await eventually('another prompt host', () =>
      childrenOf(sidecar.pid).some(({ command }) => command.includes('short')),
    );
    t.equal((await sidecar.readyz(sidecar.operatorsPort)).status, 200, 'operators are answered');
    t.ok((await sidecar.metric('ra_sidecar_connections_refused_total', { listener: 'public' })) > IDLE - OPEN_FILES);
    t.ok((await sidecar.metric('ra_sidecar_connections', { listener: 'public' })) < OPEN_FILES);
  },
);

t.test('children that could not be forked are forked when there are descriptors again', async (t) => {
  const sidecar = await Sidecar.start(t, { stub: true, config: await chatOnly(1) });
  const limit = (files: string): unknown =>
    execFileSync('prlimit', ['--pid', String(sidecar.pid), `--nofile=${files}`]);
  // One connection to each listener, which stays open.
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => agent.destroy());
  const ask = (options: RequestOptions, body = ''): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const asked = request({ host: '127.0.0.1', agent, ...options }, (response) => {
        const { statusCode = 0, headers } = response;
        text(response).then((text) => resolve({ status: statusCode, headers, text }), reject);
      });
      asked.on('error', reject).end(body);
    });
  const readyz = (): Promise<Answer> => ask({ port: sidecar.operatorsPort, path: '/readyz' });
  const chat = (): Promise<Answer> =>
    ask(
      {
        port: sidecar.port,
        path: '/v1/chat/completions',
        method: 'POST',
        headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${sidecar.key}` },
      },
      JSON.stringify(SHORT),
    );
  t.equal((await readyz()).status, 200);
  t.equal((await chat()).status, 200);

  // Every descriptor below it is in use.
  limit('8:');
  process.kill(shortHost(sidecar), 'SIGKILL');
  await sidecar.logged('prompt host restarts', 1, ({ reason }) => reason === 'unstartable: EMFILE');
  const refused = await chat();
  t.equal(refused.status, 503, 'a prompt host that cannot be forked');
  // The spool’s probe cannot open a file either and may have been first.
  t.match(JSON.parse(refused.text), { error: { code: /^(cold|spool_unhealthy)$/ } });
  t.ok(Number(refused.headers['retry-after']) > 0);
  process.kill(sidecar.enginePid(CHAT), 'SIGKILL');
  t.match(await sidecar.logged('engine lost', 1, ({ reason }) => reason !== 'killed'), {
    reason: 'unstartable: EMFILE',
  });
  const red = await readyz();
  t.equal(red.status, 503);
  t.match(red.text, /EMFILE/, 'operators see why');

  limit('1024:');
  await sidecar.logged('engine ready', 2);
  await eventually('green', async () => (await readyz()).status === 200);

  const since = new Date().toISOString();
  // The limit is not the bound of connections, which is far higher, but the last descriptor.
  const highest = Math.max(...readdirSync(`/proc/${sidecar.pid}/fd`).map(Number));
  limit(`${highest + 1}:`);
  const connections = await idle(t, sidecar, IDLE);
  await sidecar.logged('no descriptors left', 1, ({ time }) => String(time) > since);
  await eventually('those that were not accepted are closed', () => connections.refused() > IDLE / 4);
  await rests(sidecar.pid);
  t.equal((await ask({ port: sidecar.operatorsPort, path: '/healthz' })).status, 200, 'an open connection is served');
  limit('1024:');
  await sidecar.logged('descriptors are free again', 1, ({ time }) => String(time) > since);
  await eventually('green again', async () => (await readyz()).status === 200);
  const response = await sidecar.chat({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 2 });
  t.equal(response.status, 200);
  await response.body?.cancel();
});
