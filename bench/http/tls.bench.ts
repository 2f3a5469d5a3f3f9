/**
 * The processor time that TLS costs the sidecar: `node dist/bench/http/tls.bench.js`, part of `make bench`; half a
 * minute. The server runs in a child, so that the callers’ own work is not counted.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { connect as connectPlain, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { Server } from '../../sidecar/http/server.js';
import { systemClock } from '../../sidecar/lib/clock.js';
import { connectTls, testPair } from '../../test/support/certificates.js';
import { messageOf } from '../support/children.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';

const ROUNDS = 5;
const CONNECTIONS = 300;
const REQUESTS = 5000;
/** Of a stream: about a token each, 24 bytes of text, each written in a turn of its own. */
const FRAMES = 20_000;
const FRAME = JSON.stringify({ text: 'x'.repeat(24) });

if (process.argv[2] === 'serve') await serve(process.argv[3] === 'tls');
else await measure();

async function serve(tls: boolean): Promise<void> {
  const server = new Server({
    routes: {
      '/short': { GET: (exchange) => exchange.reply({ status: 200, body: '{"ok":true}' }) },
      '/stream': {
        GET: (exchange) => {
          const stream = exchange.stream();
          let left = FRAMES;
          const write = (): void => {
            stream.event(FRAME);
            left -= 1;
            if (left > 0) setImmediate(write);
            else stream.end();
          };
          write();
        },
      },
    },
    origins: [],
    clock: systemClock,
    limits: { totalBytes: 1 << 20 },
    onFault: () => process.exit(1),
    ...(tls && { tls: testPair('a') }),
  });
  const { port } = await server.listen('127.0.0.1', 0);
  process.on('message', () => process.send?.(process.cpuUsage()));
  process.send?.(port);
}

interface Subject {
  readonly child: ChildProcess;
  readonly port: number;
  readonly open: () => Promise<Socket>;
}

async function start(kind: 'plain' | 'tls'): Promise<Subject> {
  const child = fork(fileURLToPath(import.meta.url), ['serve', kind]);
  const port = await messageOf<number>(child);
  const open = async (): Promise<Socket> => {
    if (kind === 'tls') return connectTls(port);
    const socket = connectPlain(port, '127.0.0.1');
    await once(socket, 'connect');
    return socket;
  };
  return { child, port, open };
}

/** Microseconds of processor time that the server used while `work` ran. */
async function used({ child }: Subject, work: () => Promise<void>): Promise<number> {
  const now = async (): Promise<number> => {
    child.send('usage');
    const { user, system } = await messageOf<NodeJS.CpuUsage>(child);
    return user + system;
  };
  const before = await now();
  await work();
  return (await now()) - before;
}

async function ask(socket: Socket, path: string, end: string): Promise<void> {
  socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`);
  let tail = '';
  while (!tail.includes(end)) {
    const [chunk] = (await once(socket, 'data')) as [Buffer];
    tail = (tail + chunk.toString('latin1')).slice(-200);
  }
}

/** Of one subject: by connection, by request, by frame. */
async function costs(subject: Subject): Promise<readonly number[]> {
  const connections = await used(subject, async () => {
    for (let i = 0; i < CONNECTIONS; i++) {
      const socket = await subject.open();
      await ask(socket, '/short', 'true}');
      socket.destroy();
    }
  });
  const socket = await subject.open();
  const requests = await used(subject, async () => {
    for (let i = 0; i < REQUESTS; i++) await ask(socket, '/short', 'true}');
  });
  const frames = await used(subject, () => ask(socket, '/stream', '\r\n0\r\n'));
  socket.destroy();
  return [connections / CONNECTIONS, requests / REQUESTS, frames / FRAMES];
}

async function measure(): Promise<void> {
  const subjects = [await start('plain'), await start('tls')] as const;
  const rounds: (readonly number[])[][] = [[], []];
  for (let round = 0; round < ROUNDS; round++)
    for (const [i, subject] of subjects.entries()) rounds[i]?.push(await costs(subject));
  const of = (i: number, what: number): number => median((rounds[i] ?? []).map((costs) => costs[what] ?? NaN));
  const rows: Row[] = ['a connection and its request', 'a request on a kept connection', 'a frame of a stream'].map(
    (what, i) => ({
      what: what,
      'plain, µs': Number(of(0, i).toFixed(1)),
      'TLS 1.3, µs': Number(of(1, i).toFixed(1)),
    }),
  );
  for (const { child } of subjects) child.kill();
  await keep('tls', {
    title: 'TLS on the public listener, by processor time of the sidecar',
    about: [
      `Medians of ${ROUNDS} rounds, both in turn; an ECDSA P-256 certificate, no session is resumed. Frames are written one a turn.`,
    ],
    rows,
  });
}
