/**
 * Up to which length should a body be parsed on the sidecar’s own event loop (`bodies.inlineBytes`)? Inline parsing
 * blocks the loop; handing the body over costs a round trip to the prompt host, and some work on the loop as well.
 */
import { configSchema } from '../../sidecar/config/schema.js';
import { parseBody } from '../../sidecar/contracts/parse.js';
import { PromptHostClient } from '../../sidecar/prompts/client.js';
import { keepingClock } from '../../test/support/engine-harness.js';
import { endlessEmbedded } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';

const OWNER = { account: 'a', weight: 1 };

const SIZES = [256, 1024, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288, 1_048_576];

/** The longest time that one body may block the loop, ms: below the jitter that a stream’s reader sees anyway. */
const MAX_HOLD_MS = 0.25;

const PARSES = 300;
const HAND_OVERS = 100;

const MODEL = 'ra-bench';

/** Bodies of about `bytes`. `text` is one long message, the cheapest to parse; `dense` many short ones in many parts. */
const SHAPES = {
  text: (bytes: number): Buffer => body([{ role: 'user', content: 'words '.repeat(Math.max(1, (bytes - 90) / 6)) }]),
  dense: (bytes: number): Buffer => {
    const message = {
      role: 'user',
      content: Array.from({ length: 3 }, () => ({ type: 'text', text: 'Line one.\nLine "two" é' })),
    };
    const each = JSON.stringify(message).length + 1;
    return body(Array.from({ length: Math.min(4096, Math.max(1, Math.floor((bytes - 40) / each))) }, () => message));
  },
} as const;

function body(messages: readonly object[]): Buffer {
  return Buffer.from(JSON.stringify({ model: MODEL, messages }));
}

const host = new PromptHostClient({
  name: 'long',
  models: [{ id: MODEL, kind: 'chat', file: await endlessEmbedded(), contextPerSeat: 2048 }],
  workers: 1,
  silenceMs: 60_000,
  maxQueued: 8,
  inlineBytes: 0,
  clock: keepingClock,
});
await host.ready();

function parseTimes(bytes: Buffer): number[] {
  const times: number[] = [];
  for (let i = 0; i < PARSES; i++) {
    const from = performance.now();
    const { kind } = parseBody('chat', bytes);
    times.push(performance.now() - from);
    if (kind !== 'ok') throw new Error('the body is not a good one');
  }
  // The first ones run before the compiler has optimized the code.
  return times.slice(PARSES / 3);
}

/** One check in the prompt host, from the call to its answer, ms, and the CPU time that it costs this process. */
async function handOver(bytes: Buffer): Promise<{ times: number[]; cpuMs: number }> {
  const times: number[] = [];
  const { signal } = new AbortController();
  const before = process.cpuUsage();
  for (let i = 0; i < HAND_OVERS; i++) {
    const from = performance.now();
    const prompt = host.open('chat', { bytes, length: bytes.length }, OWNER);
    const { kind } = await prompt.check(signal);
    prompt.close();
    times.push(performance.now() - from);
    if (kind !== 'checked') throw new Error('the body is not a good one');
  }
  const { user, system } = process.cpuUsage(before);
  return { times, cpuMs: (user + system) / 1000 / HAND_OVERS };
}

const rows: Row[] = [];
let allowed = 0;
let stopped = false;
for (const size of SIZES) {
  for (const shape of ['text', 'dense'] as const) {
    const bytes = SHAPES[shape](size);
    parseTimes(bytes);
    await handOver(bytes);
    const parse = parseTimes(bytes);
    const { times, cpuMs } = await handOver(bytes);
    rows.push({
      'body bytes': bytes.length,
      shape,
      'inline p50 ms': median(parse),
      'inline p99 ms': quantile(parse, 0.99),
      'host p50 ms': median(times),
      'host p99 ms': quantile(times, 0.99),
      'host, CPU of the sidecar ms': cpuMs,
    });
    if (shape === 'dense') {
      stopped ||= median(parse) > Math.max(MAX_HOLD_MS, cpuMs);
      if (!stopped) allowed = size;
    }
  }
}
host.close();

await keep('inline-size', {
  title: 'Bodies parsed inline or in the prompt host',
  about: [
    `Inline: \`parseBody\` on the event loop, which it holds for that long; ${(PARSES * 2) / 3} times after as many to warm up.`,
    `Host: \`check\` of the same body through the prompt host, ${HAND_OVERS} times one after another; the last column is the CPU time of the sidecar's process for one. \`text\`: one long message; \`dense\`: many short ones, three parts each.`,
  ],
  rows,
  conclusions: [
    `Rule: inline while a dense body holds the event loop, by the median, no longer than ${MAX_HOLD_MS} ms or than handing it over costs the sidecar. By these figures: up to ${allowed} bytes. The default of \`bodies.inlineBytes\` when this ran: ${String(configSchema.properties.bodies.properties.inlineBytes.default)}.`,
  ],
});
