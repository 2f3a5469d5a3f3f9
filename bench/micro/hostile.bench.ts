/**
 * How long a hostile body holds the event loop: `node dist/bench/micro/hostile.bench.js`, part of `make bench`.
 *
 * Up to `bodies.inlineBytes` a body is parsed on the loop, so the call's own time is the block; a longer one is parsed in
 * the prompt host, and what the loop still does is to hand its bytes over. Of several calls the slowest is shown, after
 * some that warm up; it holds all else that the machine does as well.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setImmediate } from 'node:timers/promises';
import { systemClock } from '../../sidecar/lib/clock.js';
import { parseBody } from '../../sidecar/contracts/parse.js';
import { PromptHostClient } from '../../sidecar/prompts/client.js';
import { HOSTILE, type Hostile } from '../../test/support/hostile.js';
import { keep, type Row } from '../support/results.js';

const OWNER = { account: 'a', weight: 1 };

/** The default of `bodies.inlineBytes`. */
const INLINE_BYTES = 16 * 1024;

/** The longest decisions body, and a chat body as long as one message may be. */
const LARGE = { decisions: 2 ** 20 - 64, systemone: 2 ** 20 - 64, chat: 16 * 2 ** 20 } as const;

/** The default of `bodies.chatBytes`. */
const LONGEST_BYTES = 80 * 2 ** 20;

const RUNS = 5;
/** Before these: the first calls run before the compiler has optimized the code. */
const WARM_UP = 2;

const prompts = new PromptHostClient({
  name: 'long',
  models: [],
  workers: 1,
  silenceMs: 60_000,
  maxQueued: 8,
  inlineBytes: INLINE_BYTES,
  clock: systemClock,
});

/** Of a large body, ms: the loop's own part, the longest delay while it is checked, and how long that takes. */
interface Beside {
  readonly handOver: number;
  readonly delay: number;
  readonly check: number;
}

/** Milliseconds of one call on the loop, the slowest of several. */
function inlineMs({ route, body }: Hostile): number {
  const bytes = new TextEncoder().encode(body(INLINE_BYTES));
  const runs = Array.from({ length: 10 * (WARM_UP + RUNS) }, () => {
    const start = performance.now();
    parseBody(route, bytes);
    return performance.now() - start;
  });
  return Math.max(...runs.slice(10 * WARM_UP));
}

/** A large body through the prompt host; of each time the most. */
async function besideMs(route: Hostile['route'], body: string): Promise<Beside> {
  const bytes = new TextEncoder().encode(body);
  const runs: Beside[] = [];
  for (let i = 0; i < WARM_UP + RUNS; i++) {
    const delays = monitorEventLoopDelay({ resolution: 1 });
    delays.enable();
    await setImmediate();
    const prompt = prompts.open(route, { bytes, length: bytes.length }, OWNER);
    const start = performance.now();
    const checked = prompt.check(new AbortController().signal);
    const handOver = performance.now() - start;
    await checked;
    const check = performance.now() - start;
    await setImmediate();
    delays.disable();
    prompt.close();
    runs.push({ handOver, delay: delays.max / 1e6, check });
  }
  const most = (of: keyof Beside): number => Math.max(...runs.slice(WARM_UP).map((run) => run[of]));
  return { handOver: most('handOver'), delay: most('delay'), check: most('check') };
}

await prompts.ready();
const rows: Row[] = [];
let longest = 0;
for (const hostile of HOSTILE) {
  const inline = inlineMs(hostile);
  const beside = await besideMs(hostile.route, hostile.body(LARGE[hostile.route]));
  longest = Math.max(longest, inline);
  row(hostile.name, inline.toFixed(2), beside);
}
const longText = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'a'.repeat(LONGEST_BYTES - 60) }] });
row('a text of 80 MiB, the longest body', '', await besideMs('chat', longText));
prompts.close();
await keep('hostile', {
  title: 'How long hostile bodies hold the event loop',
  about: [
    `Bodies of ${INLINE_BYTES} bytes, the most that is parsed on the event loop, and of 16 MiB (chat) or 1 MiB (decision routes), which the prompt host parses. The slowest of ${RUNS} runs (inline: ${10 * RUNS}), after ${WARM_UP} (${10 * WARM_UP}) to warm up. The bound is 50 ms.`,
  ],
  rows,
  conclusions: [`The longest block: ${longest.toFixed(1)} ms.`],
});

function row(body: string, inline: string, { handOver, delay, check }: Beside): void {
  longest = Math.max(longest, handOver, delay);
  rows.push({
    body,
    'inline: parse on the loop, ms': inline,
    'large: handed over, ms': handOver.toFixed(1),
    'large: longest delay of the loop, ms': delay.toFixed(1),
    'large: answer after, ms': check.toFixed(0),
  });
}
