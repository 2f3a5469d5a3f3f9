/** Callers that send requests in one piece and read no answer, and others that are served meanwhile. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { eventually } from './processes.js';
import { CHAT, type Sidecar } from './sidecar.js';
import { unreading } from './unreading.js';

/** The most that one connection sends, if the sidecar does not close it. */
const FLOOD_BYTES = 8 * 2 ** 20;

/** Requests in one write. */
const BATCH = 2000;

/** What connections of one kind send. */
export interface Unread {
  readonly port: number;
  readonly request: Buffer;
  /** {@link BATCH} of them, for all connections. */
  readonly batch: Buffer;
}

function unread(port: number, text: string): Unread {
  return { port, request: Buffer.from(text), batch: Buffer.from(text.repeat(BATCH)) };
}

function request(method: string, path: string, headers: Readonly<Record<string, string>> = {}, body = ''): string {
  const lines = Object.entries({ Host: 'localhost', ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  const length = body === '' ? '' : `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n`;
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}${length}\r\n${body}`;
}

/** Sends the request repeatedly until the connection ends; false: it did not, or `stop` was answered first. */
export async function flood({ port, request, batch }: Unread, stop: () => boolean): Promise<boolean> {
  const socket = unreading(port);
  const closed = once(socket, 'close');
  for (let sent = 0; !socket.destroyed && !stop() && sent < FLOOD_BYTES; sent += batch.length) {
    await Promise.race([new Promise((resolve) => socket.write(batch, resolve)), closed]);
  }
  // The kernel may have taken what the sidecar has not read yet; and who does not read notices an end only by writing.
  const over = (): boolean => {
    if (!socket.destroyed) socket.write(request);
    return socket.destroyed || stop();
  };
  await eventually('the connection ends', over).catch(() => undefined);
  const ended = socket.destroyed;
  socket.destroy();
  return ended;
}

/** For each kind of answer. */
export function answersNotToRead({ port, operatorsPort, key }: Sidecar): Readonly<Record<string, Unread>> {
  const keyed = { Authorization: `Bearer ${key}` };
  const chat = JSON.stringify({ model: CHAT, max_tokens: 8, messages: [{ role: 'user', content: 'Hello' }] });
  return {
    'the description': unread(port, request('GET', '/v1/openapi.json')),
    'its head': unread(port, request('HEAD', '/v1/openapi.json')),
    health: unread(port, request('GET', '/healthz')),
    'an unknown path': unread(port, request('GET', '/nothing')),
    'no body': unread(port, request('OPTIONS', '/v1/models')),
    'an error': unread(port, request('POST', '/v1/chat/completions', {}, chat)),
    'models, with a key': unread(port, request('GET', '/v1/models', keyed)),
    'a chat, with a key': unread(port, request('POST', '/v1/chat/completions', keyed, chat)),
    'the operators’ metrics': unread(operatorsPort, request('GET', '/metrics')),
    'the operators’ page': unread(operatorsPort, request('GET', '/console/main.js')),
    'the operators’ feed': unread(operatorsPort, request('GET', '/console/events')),
  };
}

/** Descriptions that each caller reads while others are measured. */
const READ = 100;

/** Requests the description {@link READ} times and reads it. */
export async function readAnswers(port: number): Promise<void> {
  for (let i = 0; i < READ; i++) await (await fetch(`http://127.0.0.1:${port}/v1/openapi.json`)).arrayBuffer();
}

const HEALTH = new URL('./health-worker.js', import.meta.url);

/** Requests the server’s health during `work`. Resolves with the time of each answer, ms. */
export async function othersBeside(port: number, work: () => Promise<void>): Promise<readonly number[]> {
  const worker = new Worker(HEALTH, { workerData: port });
  await once(worker, 'message');
  const times = once(worker, 'message') as Promise<[readonly number[]]>;
  await work();
  worker.postMessage('over');
  return (await times)[0];
}
