/**
 * What the embeddings of one image cost the sidecar's event loop, through which they pass from the vision process to the
 * engine: how long no other callback runs. A child stands for both: it sends back what it is sent.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import { LinkedChild } from '../../test/support/linked-child.js';
import { keep, type Row } from '../support/results.js';
import { median } from '../support/stats.js';

const ROUNDS = 7;
const MIB = 2 ** 20;

/** Embeddings of an image: tokens, and numbers a token. */
const IMAGES = [
  { of: 'Gemma 3 4B', tokens: 256, width: 2560 },
  { of: '2,560 wide, 1,024 tokens', tokens: 1024, width: 2560 },
  { of: '2,560 wide, 4,096 tokens', tokens: 4096, width: 2560 },
  { of: 'Qwen3-VL-8B, 4,096 tokens', tokens: 4096, width: 4 * 4096 },
] as const;

const child = new LinkedChild(fileURLToPath(new URL('../../test/support/link-echo.js', import.meta.url)));

/** The longest that callbacks waited, ms. */
async function round(
  values: Float32Array,
): Promise<{ readonly stallMs: number; readonly cpuMs: number; readonly ms: number }> {
  const back = new Promise((resolve) => child.once('message', resolve));
  const delay = monitorEventLoopDelay({ resolution: 1 });
  const from = performance.now();
  const cpu = process.cpuUsage();
  delay.enable();
  child.send({ kind: 'embeddings', values });
  await back;
  // One more turn, so that a stall at the end is seen too.
  await new Promise((later) => setTimeout(later, 5));
  delay.disable();
  const { user, system } = process.cpuUsage(cpu);
  return { stallMs: delay.max / 1e6, cpuMs: (user + system) / 1000, ms: performance.now() - from };
}

const rows: Row[] = [];
for (const { of, tokens, width } of IMAGES) {
  const values = new Float32Array(tokens * width).fill(0.5);
  await round(values);
  const rounds = [];
  for (let each = 0; each < ROUNDS; each++) rounds.push(await round(values));
  rows.push({
    image: of,
    MiB: values.byteLength / MIB,
    'longest stall, ms': median(rounds.map(({ stallMs }) => stallMs)),
    'processor time, ms': median(rounds.map(({ cpuMs }) => cpuMs)),
    'there and back, ms': median(rounds.map(({ ms }) => ms)),
  });
}
child.leave();

await keep('vision-transport', {
  title: 'What the embeddings of an image cost the event loop that they pass',
  about: [
    `Median of ${ROUNDS} rounds. The longest stall is the longest time in which this process runs no other callback while embeddings are sent and come back; a timer of one millisecond measures it, so that about 1 ms is none. Processor time is this process's, for both ways.`,
  ],
  rows,
});
process.exit(0);
