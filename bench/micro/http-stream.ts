/**
 * What the HTTP edge costs alone: `node dist/bench/micro/http-stream.js [seconds]`.
 *
 * The server runs here; raw-socket callers run in a child process, so that the server's CPU time is its own. Each figure
 * is work done per second of the server's CPU, that is, per core, and per second of wall clock.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { fileURLToPath } from 'node:url';
import { systemClock } from '../../sidecar/lib/clock.js';
import { messageOf } from '../support/children.js';
import { Server } from '../../sidecar/http/server.js';

const CONNECTIONS = 32;
const BODY = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'x'.repeat(1950) }] });
const ANSWER = JSON.stringify({ id: 'x', object: 'chat.completion', text: 'y'.repeat(300) });
const FRAME = JSON.stringify({ id: 'x', object: 'chat.completion.chunk', choices: [{ delta: { content: ' word' } }] });
/** A step of 32 seats: each stream gets one frame a tick, as from one engine message. */
const FRAMES = 500;

type Kind = 'reply' | 'stream';

interface Done {
  readonly kind: Kind;
  readonly responses: number;
}

/** Runs in the child: keeps CONNECTIONS busy for a while, one request at a time on each. */
async function call(port: number, kind: Kind, seconds: number): Promise<number> {
  const request = `POST /${kind} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY}`;
  const mark = Buffer.from(kind === 'reply' ? ANSWER.slice(-20) : '0\r\nServer-Timing');
  const until = performance.now() + seconds * 1000;
  let responses = 0;
  const one = async (): Promise<void> => {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    socket.on('data', (bytes) => {
      if (!bytes.subarray(-200).includes(mark)) return;
      responses++;
      if (performance.now() < until) socket.write(request);
      else socket.end();
    });
    socket.write(request);
    await once(socket, 'close');
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, one));
  return responses;
}

async function main(seconds: number): Promise<void> {
  const open = new Set<() => boolean>();
  const step = (): void => {
    for (const next of open) if (!next()) open.delete(next);
    if (open.size > 0) setImmediate(step);
  };
  const server = new Server({
    routes: {
      '/reply': {
        POST: async (exchange) => {
          const body = await exchange.body(1 << 20);
          if (body.kind === 'body') exchange.reply({ status: 200, body: ANSWER });
        },
      },
      '/stream': {
        POST: async (exchange) => {
          await exchange.body(1 << 20);
          const stream = exchange.stream();
          let left = FRAMES;
          if (open.size === 0) setImmediate(step);
          open.add(() => {
            stream.event(FRAME);
            if (--left === 0) stream.end('ra-ttft;dur=1');
            return left > 0;
          });
        },
      },
    },
    origins: [],
    clock: systemClock,
    limits: { totalBytes: 1 << 30 },
    onFault: (fault) => {
      throw fault;
    },
  });
  const { port } = await server.listen('127.0.0.1', 0);
  for (const kind of ['reply', 'stream'] as const) {
    const child = fork(fileURLToPath(import.meta.url), [String(port), kind, String(seconds)]);
    const [before, start] = [process.cpuUsage(), performance.now()];
    const { responses } = await messageOf<Done>(child);
    const cpu = process.cpuUsage(before);
    const work = kind === 'reply' ? responses : responses * FRAMES;
    const [perCore, perSecond] = [(cpu.user + cpu.system) / 1e6, (performance.now() - start) / 1000].map((s) =>
      Math.round(work / s),
    );
    process.stdout.write(`${kind}: ${perCore} per CPU second, ${perSecond} per second\n`);
  }
  await server.close();
}

const [port, kind, seconds] = process.argv.slice(2);
if (process.send === undefined) {
  await main(Number(port ?? 4));
} else {
  const responses = await call(Number(port), kind as Kind, Number(seconds));
  process.send({ kind: kind as Kind, responses } satisfies Done);
  process.disconnect();
}
