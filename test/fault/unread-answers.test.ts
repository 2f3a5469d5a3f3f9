/**
 * Callers that send requests in one piece and read no answer: the sidecar’s memory stays bounded and others are served.
 * The first argument is the number of connections for each kind of answer, for longer runs.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { eventually, residentBytes } from '../support/processes.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';
import { unreading } from '../support/unreading.js';
import { rounds } from '../support/long-form.js';

const CONNECTIONS = Number(process.argv[2] ?? rounds({ short: 1, long: 3 }));
const MIB = 1 << 20;

/** How often the sidecar’s memory is read, ms. */
const WATCH_MS = 2;

/** The most that the sidecar may grow by, however many such connections there are. */
const GROWTH_BYTES = 100 * MIB;

/** The most that one connection sends, if the sidecar does not close it. */
const FLOOD_BYTES = 8 * MIB;

/** Requests in one write. */
const BATCH = 2000;

function request(method: string, path: string, headers: Readonly<Record<string, string>> = {}, body = ''): string {
  const lines = Object.entries({ Host: 'test', ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  const length = body === '' ? '' : `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n`;
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}${length}\r\n${body}`;
}

/** Sends the request repeatedly until the connection ends; false: it did not, or `stop` was answered first. */
async function flood(port: number, text: string, stop: () => boolean): Promise<boolean> {
  const socket = unreading(port);
  const closed = once(socket, 'close');
  const batch = text.repeat(BATCH);
  for (let sent = 0; !socket.destroyed && !stop() && sent < FLOOD_BYTES; sent += batch.length) {
    await Promise.race([new Promise((resolve) => socket.write(batch, resolve)), closed]);
  }
  // The kernel may have taken what the sidecar has not read yet; and who does not read notices an end only by writing.
  const over = (): boolean => {
    if (!socket.destroyed) socket.write(text);
    return socket.destroyed || stop();
  };
  await eventually('the connection ends', over).catch(() => undefined);
  const ended = socket.destroyed;
  socket.destroy();
  return ended;
}

/** With so many connections the goals are asserted, on an idle machine: so many times as long, and so many ms. */
const MANY = { connections: 100, slower: 2, turnMs: 20 };

/** Descriptions that each caller reads while others are measured. */
const READ = 100;

/** The most time of an answer beside callers that do not read, as a multiple of its time beside readers. */
const SLOWER = 5;
/** And in addition, ms: what a process on a shared machine may wait to be scheduled. */
const TURN_MS = 200;
/**
 * With fewer answers the slowest of a hundred is the slowest of all, which measures the machine: then the median is
 * compared.
 */
const ENOUGH_FOR_P99 = 500;

function quantile(times: readonly number[], part: number): number {
  return [...times].sort((a, b) => a - b)[Math.floor(part * times.length)] ?? Infinity;
}

/** Requests the description {@link READ} times and reads it. */
async function read(port: number): Promise<void> {
  for (let i = 0; i < READ; i++) await (await fetch(`http://127.0.0.1:${port}/v1/openapi.json`)).arrayBuffer();
}

const HEALTH = new URL('../support/health-worker.js', import.meta.url);

/** Requests the server’s health during `work`. Resolves with the time of each answer, ms. */
async function othersBeside(port: number, work: () => Promise<void>): Promise<readonly number[]> {
  const worker = new Worker(HEALTH, { workerData: port });
  await once(worker, 'message');
  const times = once(worker, 'message') as Promise<[readonly number[]]>;
  await work();
  worker.postMessage('over');
  return (await times)[0];
}

t.test('answers that are not read use bounded memory, and others are served', async (t) => {
  const sidecar = await Sidecar.start(t, { config: await chatOnly(2) });
  const { port, operatorsPort, key } = sidecar;
  const keyed = { Authorization: `Bearer ${key}` };
  const chat = JSON.stringify({ model: CHAT, max_tokens: 8, messages: [{ role: 'user', content: 'Hello' }] });
  const kinds: Readonly<Record<string, readonly [port: number, text: string]>> = {
    'the description': [port, request('GET', '/v1/openapi.json')],
    'its head': [port, request('HEAD', '/v1/openapi.json')],
    health: [port, request('GET', '/healthz')],
    'an unknown path': [port, request('GET', '/nothing')],
    'no body': [port, request('OPTIONS', '/v1/models')],
    'an error': [port, request('POST', '/v1/chat/completions', {}, chat)],
    'models, with a key': [port, request('GET', '/v1/models', keyed)],
    'a chat, with a key': [port, request('POST', '/v1/chat/completions', keyed, chat)],
    'the operators’ metrics': [operatorsPort, request('GET', '/metrics')],
    'the operators’ page': [operatorsPort, request('GET', '/console/main.js')],
    'the operators’ feed': [operatorsPort, request('GET', '/console/events')],
  };
  t.equal((await fetch(`http://127.0.0.1:${port}/healthz`)).status, 200);
  const before = residentBytes(sidecar.pid);
  let most = before;
  const watch = setInterval(() => (most = Math.max(most, residentBytes(sidecar.pid))), WATCH_MS);
  const grewTooMuch = (): boolean => most - before >= GROWTH_BYTES;
  const unread = await othersBeside(port, async () => {
    for (const [what, [at, text]] of Object.entries(kinds)) {
      const ended = await Promise.all(Array.from({ length: CONNECTIONS }, () => flood(at, text, grewTooMuch)));
      t.ok(
        ended.every((each) => each),
        `${what}: each connection was closed`,
      );
    }
  });
  clearInterval(watch);
  const grown = Math.round((most - before) / MIB);
  t.notOk(grewTooMuch(), `grew by ${grown} MiB`);
  const beside = await othersBeside(port, async () => {
    await Promise.all(Array.from({ length: CONNECTIONS }, () => read(port)));
  });
  const part = Math.min(unread.length, beside.length) < ENOUGH_FOR_P99 ? 0.5 : 0.99;
  const [besideMs, unreadMs] = [quantile(beside, part), quantile(unread, part)];
  const summary = `others' answers, quantile ${part}: ${unreadMs.toFixed(1)} ms, beside readers ${besideMs.toFixed(1)} ms`;
  const { slower, turnMs } = CONNECTIONS < MANY.connections ? { slower: SLOWER, turnMs: TURN_MS } : MANY;
  t.ok(unreadMs <= slower * besideMs + turnMs, summary);
  t.comment(`grew by ${grown} MiB; ${summary}, of ${unread.length} and ${beside.length}`);
});
