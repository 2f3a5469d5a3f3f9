/**
 * Callers who send requests in one piece and read no answer, against the running sidecar: its memory stays bounded and
 * others are served. The number of connections for each kind of answer is the first argument, for longer runs.
 */
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import t from 'tap';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';
import { unreading } from '../support/unreading.js';
import { rounds } from '../support/long-form.js';

const CONNECTIONS = Number(process.argv[2] ?? rounds({ short: 1, long: 3 }));
const MIB = 1 << 20;

/** What the sidecar may grow by, however many such connections there are. */
const GROWTH_BYTES = 100 * MIB;

/** What one connection sends at most, if the sidecar does not end it. */
const FLOOD_BYTES = 8 * MIB;

/** Requests in one write. */
const BATCH = 2000;

/** Of a process, in bytes. */
async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}

function request(method: string, path: string, headers: Readonly<Record<string, string>> = {}, body = ''): string {
  const lines = Object.entries({ Host: 'test', ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  const length = body === '' ? '' : `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n`;
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}${length}\r\n${body}`;
}

/** Sends the request again and again until the connection ends; false: it did not, or `stop` was answered first. */
async function flood(port: number, text: string, stop: () => boolean): Promise<boolean> {
  const socket = unreading(port);
  const closed = once(socket, 'close');
  const batch = text.repeat(BATCH);
  for (let sent = 0; !socket.destroyed && !stop() && sent < FLOOD_BYTES; sent += batch.length) {
    await Promise.race([new Promise((resolve) => socket.write(batch, resolve)), closed]);
  }
  const ended = socket.destroyed;
  socket.destroy();
  return ended;
}

/** Health answers that the others wait for beside callers who read. */
const COMPARED = 200;

/** What the slowest of a hundred answers may take beside callers who do not read: so many times what it takes beside readers. */
const SLOWER = 5;
/** And besides, ms: what a process on a shared machine may have to wait for its turn. */
const TURN_MS = 200;

function p99(times: readonly number[]): number {
  return [...times].sort((a, b) => a - b)[Math.floor(0.99 * times.length)] ?? Infinity;
}

/** Requests the description again and again and reads it. */
async function read(port: number, over: () => boolean): Promise<void> {
  while (!over()) await (await fetch(`http://127.0.0.1:${port}/v1/openapi.json`)).arrayBuffer();
}

t.test('answers that nobody reads cost a bounded amount of memory, and others are served', async (t) => {
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
  const health = async (): Promise<number> => (await fetch(`http://127.0.0.1:${port}/healthz`)).status;
  t.equal(await health(), 200);
  const before = await residentBytes(sidecar.pid);
  let most = before;
  const over = new AbortController();
  const watch = (async () => {
    while (!over.signal.aborted) most = Math.max(most, await residentBytes(sidecar.pid));
  })();
  const grewTooMuch = (): boolean => most - before >= GROWTH_BYTES;
  /** Health answers until `ended`, how long each took in ms. */
  const others = async (ended: (answers: number) => boolean): Promise<readonly number[]> => {
    const times: number[] = [];
    while (!ended(times.length)) {
      const from = performance.now();
      if ((await health()) !== 200) throw new Error('another caller was not served');
      times.push(performance.now() - from);
    }
    return times;
  };
  const beside = others(() => over.signal.aborted);
  for (const [what, [at, text]] of Object.entries(kinds)) {
    const ended = await Promise.all(Array.from({ length: CONNECTIONS }, () => flood(at, text, grewTooMuch)));
    t.ok(
      ended.every((each) => each),
      `${what}: each connection was ended`,
    );
  }
  over.abort();
  const [unread] = await Promise.all([beside, watch]);
  const grown = Math.round((most - before) / MIB);
  t.notOk(grewTooMuch(), `grew by ${grown} MiB`);
  let enough = false;
  const readers = Array.from({ length: CONNECTIONS }, () => read(port, () => enough));
  const readP99 = p99(await others((answers) => answers >= COMPARED));
  enough = true;
  await Promise.all(readers);
  const unreadP99 = p99(unread);
  t.ok(unreadP99 <= SLOWER * readP99 + TURN_MS, `others’ p99: ${unreadP99} ms, beside readers ${readP99} ms`);
  t.comment(`grew by ${grown} MiB; others had ${unread.length} answers, p99 ${unreadP99.toFixed(1)} ms`);
});
