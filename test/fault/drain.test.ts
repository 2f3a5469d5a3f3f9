import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { FLUSH_MS } from '../../sidecar/app/servers.js';
import { PATIENT_ENGINE, PATIENT_QUEUE } from '../support/config-parts.js';
import { cases } from '../support/long-form.js';
import { counted } from '../support/counted.js';
import { ENDLESS, endsEarly, endsWell, OpenStream, SHORT } from '../support/open-stream.js';
import { childrenOf, eventually, groupMembers, isRunning, signalGroup, signalProcess } from '../support/processes.js';
import { PATIENT_MS } from '../support/patience.js';
import { parse, RawConnection } from '../support/raw-http.js';
import { CHAT, chatOnly, Sidecar, unloadedChat } from '../support/sidecar.js';
import { ENGINE, ProcessGate } from '../support/process-gate.js';
import { shortDir } from '../support/short-dir.js';

const CLI = fileURLToPath(new URL('../../sidecar/cli.js', import.meta.url));

const DRAINING = { code: 'draining', type: 'server_error' };

async function isRefused(t: Test, response: Response): Promise<void> {
  t.equal(response.status, 503);
  t.match(await response.json(), { error: DRAINING });
  t.match(response.headers.get('retry-after'), /^[1-9][0-9]*$/);
  t.match(response.headers.get('retry-after-ms'), /^[1-9][0-9]*$/);
}

/** A connection that its caller has used and keeps. */
async function kept(t: Test, port: number): Promise<RawConnection> {
  const connection = await RawConnection.open(port);
  t.teardown(() => connection.close());
  t.equal((await connection.request('GET', '/healthz').response()).field('connection'), undefined);
  return connection;
}

async function isEmpty(sidecar: Sidecar): Promise<void> {
  await eventually('no process left', () => groupMembers(sidecar.pid).length === 0);
}

const stops = {
  'SIGTERM to the sidecar alone': (sidecar: Sidecar) => sidecar.child.kill('SIGTERM'),
  'SIGTERM to the whole group': (sidecar: Sidecar) => signalGroup(sidecar.pid, 'SIGTERM'),
  'SIGINT to the whole group, as Ctrl-C': (sidecar: Sidecar) => signalGroup(sidecar.pid, 'SIGINT'),
};

for (const [name, stop] of cases(Object.entries(stops), (_, index) => index === 1)) {
  t.test(`${name}: after the notice running streams finish, all other requests are refused`, async (t) => {
    // The shortest notice, after which it drains.
    const config = {
      ...(await chatOnly(1, 8192)),
      drain: { noticeMs: 1, timeoutMs: PATIENT_MS },
      queue: PATIENT_QUEUE,
      engine: PATIENT_ENGINE,
    };
    const sidecar = await Sidecar.start(t, { stub: true, ownGroup: true, config });
    const engine = sidecar.enginePid(CHAT);
    const running = await OpenStream.begin(sidecar, { ...ENDLESS, max_tokens: 1000 });
    // The engine is stopped, so it cannot finish before the test has looked.
    process.kill(engine, 'SIGSTOP');
    const waiting = sidecar.chat(SHORT);
    await counted(sidecar, 'waiting_requests', 1);
    const [caller, prober] = [await kept(t, sidecar.port), await kept(t, sidecar.operatorsPort)];

    stop(sidecar);
    await sidecar.logged('leaving');
    t.match(await sidecar.logged('draining'), { count: 2 });
    const fields = { Authorization: `Bearer ${sidecar.key}`, 'Content-Type': 'application/json' };
    const refused = await caller.request('POST', '/v1/chat/completions', fields, JSON.stringify(SHORT)).response();
    t.match([refused.status, refused.field('connection')], [503, 'close'], 'so that its caller connects elsewhere');
    t.equal(await caller.rest(), '', 'its connection ends');
    t.equal((await prober.request('GET', '/healthz').response()).field('connection'), undefined);
    await isRefused(t, await waiting);
    await isRefused(t, await sidecar.chat(SHORT));
    await isRefused(t, await sidecar.chat({ ...SHORT, stream: true }));
    t.match(await sidecar.readyz(), { status: 503, body: { status: 'draining' } });
    t.match(await sidecar.readyz(sidecar.operatorsPort), { status: 503, body: { reasons: ['draining'] } });
    t.equal((await fetch(`http://127.0.0.1:${sidecar.port}/healthz`)).status, 200);

    process.kill(engine, 'SIGCONT');
    endsWell(t, await running.response);
    t.strictSame(await sidecar.exited(), { code: 0, signal: null });
    t.notOk(
      sidecar.lines.some(({ event }) => event === 'engine lost' || event === 'drain timed out'),
      'the engine ran until the end',
    );
    t.match(await sidecar.logged('drained'), { count: 2, aborted: 0, durationMs: /^\d+$/ });
    await isEmpty(sidecar);
  });
}

/** The first reply of the test below, and the longest that it tries, in tokens: one a frame. */
const FIRST_REPLY = 320;
const LONGEST_REPLY = 2560;

t.test('a stream that ended is not cut while its reader still reads', async (t) => {
  // Linux counts at least 768 bytes for each write and holds 208 KiB for a Unix socket, so 278 frames fit. On a busy machine tokens
  // share frames; then a longer reply is tried.
  for (let tokens = FIRST_REPLY; !(await waitsForItsReader(t, tokens)); tokens *= 2)
    if (tokens >= LONGEST_REPLY) return void t.fail('it never waited');
});

/** Whether a drain waited for a reader that began once all was sent. */
async function waitsForItsReader(t: Test, tokens: number): Promise<boolean> {
  const socket = join(shortDir(t), 'socket');
  const listen = { host: '127.0.0.1', port: 0, socket };
  // A busy machine may take minutes for the reply.
  const config = { ...(await chatOnly(1, LONGEST_REPLY + 1000)), listen, drain: { timeoutMs: PATIENT_MS } };
  const sidecar = await Sidecar.start(t, { stub: true, ownGroup: true, config });
  const engine = sidecar.enginePid(CHAT);
  // Paused before it is connected, it reads nothing.
  const reader = connect(socket).pause();
  const body = JSON.stringify({ ...ENDLESS, max_tokens: tokens, stream: true });
  const fields = [
    `Authorization: Bearer ${sidecar.key}`,
    'Content-Type: application/json',
    'TE: trailers',
    `Content-Length: ${body.length}`,
  ];
  reader.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\n${fields.join('\r\n')}\r\n\r\n${body}`);
  await counted(sidecar, 'seats_busy', 1);
  sidecar.child.kill('SIGTERM');
  await sidecar.logged('draining');
  await sidecar.logged('request');
  await eventually('the engine ended', () => !isRunning(engine));
  // Several times as long as the last bytes of replies have otherwise.
  const waited = await Promise.race([sidecar.exited().then(() => false), setTimeout(10 * FLUSH_MS, true)]);
  t.equal(reader.bytesRead, 0, 'its reader has not begun');
  const whole = parse(await buffer(reader), false);
  if (whole === undefined) throw new Error('the response was cut');
  endsWell(t, whole.response);
  t.strictSame(await sidecar.exited(), { code: 0, signal: null });
  return waited;
}

t.test('requests that still run when the drain times out end with an error', async (t) => {
  const config = { ...(await chatOnly(3, 8192)), drain: { timeoutMs: 1 } };
  const sidecar = await Sidecar.start(t, { stub: true, ownGroup: true, config });
  const whole = sidecar.chat(ENDLESS);
  await counted(sidecar, 'seats_busy', 1);
  const streams = [await OpenStream.begin(sidecar), await OpenStream.begin(sidecar)];

  sidecar.child.kill('SIGTERM');
  const cut = { code: 'bad_gateway', type: 'server_error' };
  for (const { response } of streams) endsEarly(t, await response, cut);
  const answer = await whole;
  t.equal(answer.status, 502, 'not 503: a proxy that retries those would run it twice');
  t.match(await answer.json(), { error: cut });
  t.strictSame(await sidecar.exited(), { code: 0, signal: null });
  t.match(await sidecar.logged('drain timed out'), { count: 3 });
  await isEmpty(sidecar);
});

t.test('a sidecar that was never ready gives no notice', async (t) => {
  const config = { ...(await chatOnly(1)), drain: { noticeMs: 600_000 } };
  const gate = new ProcessGate(t, { stub: true });
  gate.close(ENGINE);
  const { environment } = gate;
  const sidecar = await Sidecar.start(t, { stub: true, early: true, ownGroup: true, environment, config });
  await gate.stopped();
  sidecar.child.kill('SIGTERM');
  t.strictSame(await sidecar.exited(), { code: 0, signal: null });
});

t.test('SIGHUP, SIGTERM and SIGINT one after the other', async (t) => {
  // Longer than the test: everything is seen before its end.
  const config = { ...(await chatOnly(2, 8192)), drain: { noticeMs: 600_000 } };
  const sidecar = await Sidecar.start(t, { stub: true, ownGroup: true, config });

  await t.test('SIGHUP to the whole group is a reload: replies continue, and no child ends', async (t) => {
    const children = childrenOf(sidecar.pid);
    const running = await OpenStream.begin(sidecar, { ...ENDLESS, max_tokens: 50 });
    signalGroup(sidecar.pid, 'SIGHUP');
    // After those of the start and of the development key.
    await sidecar.logged('keys loaded', 3);
    endsWell(t, await running.response);
    t.equal((await sidecar.chat(SHORT)).status, 200);
    t.strictSame(childrenOf(sidecar.pid), children);
  });

  await t.test('during the notice of SIGTERM /readyz fails and requests are accepted', async (t) => {
    sidecar.child.kill('SIGTERM');
    t.match(await sidecar.logged('leaving'), { count: 0 });
    t.match(await sidecar.readyz(), { status: 503, body: { status: 'draining' } });
    t.equal((await sidecar.chat(SHORT)).status, 200);
    const stream = await (await OpenStream.begin(sidecar, SHORT)).response;
    endsWell(t, stream);
    t.equal(stream.field('connection'), undefined);
    await kept(t, sidecar.port);
    t.notOk(sidecar.lines.some(({ event }) => event === 'draining'));
  });

  await t.test('a second signal ends it at once', async (t) => {
    const running = await OpenStream.begin(sidecar);
    sidecar.child.kill('SIGINT');
    t.strictSame(await sidecar.exited(), { code: 130, signal: null });
    await t.rejects(running.response, /the connection ended/);
    await isEmpty(sidecar);
  });
});

t.test('SIGHUP is a reload while its terminal is open, and the end of the terminal is a drain', async (t) => {
  const dir = t.testdir({ log: '' });
  const log = (): string => readFileSync(join(dir, 'log'), 'utf8');
  // The shell becomes the sidecar, so that the kernel signals the sidecar as it would signal a login shell.
  const script = ['-qec', `exec '${process.execPath}' '${CLI}' serve > '${join(dir, 'log')}'`, '/dev/null'];
  const environment = { RA_DATA_DIR: dir, RA_MODELS: JSON.stringify((await unloadedChat()).models) };
  const terminal = spawn('script', script, {
    stdio: ['pipe', 'ignore', 'ignore'],
    env: { ...process.env, ...environment, SHELL: '/bin/sh', RA_LISTEN_PORT: '0', RA_OPERATORS_PORT: '0' },
  });
  t.teardown(() => terminal.kill('SIGKILL'));
  await eventually('it runs', () => log().includes('"keys loaded"'));
  const [sidecar = { pid: 0 }] = childrenOf(terminal.pid ?? 0);
  t.teardown(() => signalProcess(sidecar.pid, 'SIGKILL'));
  const loads = (): number => log().split('"keys loaded"').length - 1;
  // Of the development key, and of the signal.
  await eventually('it is ready', () => loads() === 2);
  process.kill(sidecar.pid, 'SIGHUP');
  await eventually('a reload', () => loads() === 3);
  t.notMatch(log(), '"draining"');

  terminal.kill('SIGKILL');
  await eventually('it has ended', () => !isRunning(sidecar.pid));
  t.match(log(), '"draining"');
  t.notMatch(log(), '"crashed"');
});
