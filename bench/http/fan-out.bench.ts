/**
 * What the sidecar pays for each frame: eight stand-in engines of 64 sequences at 80 tokens a second to 512 sockets, in processor
 * time, beside a minimal C program that writes as many frames of the same length to as many sockets:
 * `node dist/bench/http/fan-out.bench.js`, half a minute. The sidecar, its engines and the reader are processes of their own, so
 * that each one's processor time is told apart.
 */
import { execFileSync, fork, spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { chatBody, InProcess, JSON_HEADERS } from '../../test/support/in-process.js';
import { messageOf } from '../support/children.js';
import { cpuOf } from '../support/cpu.js';
import { keep, type Row } from '../support/results.js';
import { quantile } from '../support/stats.js';
import { Teardowns } from '../support/teardowns.js';

const SEATS = 64;
const SECONDS = 5;
const WARM_MS = 2000;
const STEPS_A_SECOND = 80;
/** About that of a chunk of a chat, framing included. */
const FRAME_BYTES = 230;
const SOURCE = fileURLToPath(new URL('../../../bench/http/fan-out.c', import.meta.url));

/** What a reader saw. */
interface Seen {
  readonly frames: number;
  /** Between two reads of one socket, ms. */
  readonly gapP99Ms: number;
}

const [role, ...rest] = process.argv.slice(2);
if (role === 'sidecar') await serve(Number(rest[0]));
else if (role === 'reader') await read(Number(rest[0]), Number(rest[1]));
else await measure();

async function serve(replicas: number): Promise<void> {
  const sidecar = await InProcess.start(new Teardowns(), {
    models: [{ id: 'm', kind: 'chat', seats: SEATS, contextPerSeat: 8192, replicas }],
    config: {
      queue: { maxWaitMs: 60_000, waitingPerSeat: 100 },
      development: { validateAnswers: false },
    },
    keeps: false,
  });
  const engines = sidecar.lines.filter(({ event }) => event === 'engine forked').map(({ pid }) => Number(pid));
  process.send?.({ port: sidecar.port, engines });
}

/** Opens the sockets, and counts what comes from each `start` to the next message. */
async function read(port: number, sockets: number): Promise<void> {
  let frames = 0;
  let gaps: number[] = [];
  const body = JSON.stringify(chatBody('m', 'steady', { max_tokens: 8000, stream: true }));
  const headers = Object.entries({ ...JSON_HEADERS, 'Content-Length': String(body.length) });
  const head = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  let begun = 0;
  for (let i = 0; i < sockets; i += 1) {
    const socket = connect(port, '127.0.0.1');
    socket.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n${head}\r\n${body}`);
    let last = 0;
    socket.on('data', (chunk: Buffer) => {
      const now = performance.now();
      if (last === 0) begun += 1;
      else gaps.push(now - last);
      if (begun === sockets && last === 0) process.send?.('all');
      last = now;
      for (let at = chunk.indexOf('\n\n'); at >= 0; at = chunk.indexOf('\n\n', at + 2)) frames += 1;
    });
    socket.on('error', () => process.exit(1));
  }
  process.on('message', (what) => {
    if (what === 'start') [frames, gaps] = [0, []];
    else process.send?.({ frames, gapP99Ms: quantile(gaps, 0.99) } satisfies Seen);
  });
  await new Promise(() => undefined);
}

function started(...args: readonly (string | number)[]): ChildProcess {
  return fork(fileURLToPath(import.meta.url), args.map(String), { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
}

async function sidecarRow(replicas: number): Promise<Row> {
  const sockets = replicas * SEATS;
  const sidecar = started('sidecar', replicas);
  const { port, engines } = await messageOf<{ port: number; engines: number[] }>(sidecar);
  const reader = started('reader', port, sockets);
  await messageOf(reader);
  await new Promise((later) => setTimeout(later, WARM_MS));
  const pids = [Number(sidecar.pid), Number(reader.pid), ...engines];
  const spent = async (): Promise<number[]> => (await Promise.all(pids.map(cpuOf))).map(({ all }) => all);
  reader.send('start');
  const before = await spent();
  await new Promise((later) => setTimeout(later, SECONDS * 1000));
  const after = await spent();
  reader.send('end');
  const { frames, gapP99Ms } = await messageOf<Seen>(reader);
  const each = after.map((seconds, at) => (seconds - (before[at] ?? 0)) / SECONDS);
  sidecar.kill('SIGKILL');
  reader.kill('SIGKILL');
  const [own = 0, reading = 0, ...making] = each;
  return {
    what: `${replicas} replica${replicas === 1 ? '' : 's'}`,
    sockets,
    'frames/s offered': sockets * STEPS_A_SECOND,
    'frames/s that arrived': frames / SECONDS,
    'gap p99 ms': gapP99Ms,
    'CPU s/s': own,
    'engines, CPU s/s': making.reduce((sum, seconds) => sum + seconds, 0),
    'reader, CPU s/s': reading,
  };
}

/** The reader's requests are read, and then only frames are written. */
async function leastRow(binary: string, sockets: number): Promise<Row> {
  const seconds = SECONDS + WARM_MS / 1000;
  const writer = spawn(binary, [String(sockets), String(seconds), String(FRAME_BYTES)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const lines = createInterface(writer.stdout)[Symbol.asyncIterator]();
  const port = Number((await lines.next()).value);
  const reader = started('reader', port, sockets);
  await messageOf(reader);
  reader.send('start');
  const used = Number((await lines.next()).value);
  reader.send('end');
  const { frames, gapP99Ms } = await messageOf<Seen>(reader);
  reader.kill('SIGKILL');
  return {
    what: 'a minimal C program',
    sockets,
    'frames/s offered': sockets * STEPS_A_SECOND,
    'frames/s that arrived': frames / seconds,
    'gap p99 ms': gapP99Ms,
    'CPU s/s': used / seconds,
  };
}

async function measure(): Promise<void> {
  const binary = join(mkdtempSync(join(tmpdir(), 'fan-out-')), 'fan-out');
  execFileSync('cc', ['-O2', '-o', binary, SOURCE]);
  const least = await leastRow(binary, 8 * SEATS);
  const rows = [least, await sidecarRow(1), await sidecarRow(8)];
  const floor = Number(least['CPU s/s']);
  await keep('fan-out', {
    title: 'The processor time of a frame',
    about: [
      `Stand-in engines of ${SEATS} sequences, each with a token every 12.5 ms, through the whole sidecar to a socket for each sequence. ${SECONDS} s after ${WARM_MS / 1000} s to warm up. CPU: seconds on a processor for each second, of the sidecar’s process with all its threads; engines and reader are told apart. The C program (bench/http/fan-out.c) writes ${FRAME_BYTES} bytes to each of as many sockets every 12.5 ms. Where the processor is full, frames come in fewer reads and later.`,
    ],
    rows: rows.map((row) => ({ ...row, 'to the C program': Number(row['CPU s/s']) / floor })),
  });
}
