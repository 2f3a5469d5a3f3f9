/**
 * What the prefix cache costs where no prompt comes back: pairs of runs in one process, with it and without, in turn. Processor
 * time beside wall time, since it is the steadier of the two on a machine that has other work.
 *
 *     node dist/bench/engine/cache-cost.bench.js [embedded | first | 150m]
 */
import { availableMemory } from '../../engine/llama/memory/available.js';
import { loadRuntime, type Runtime } from '../../engine/llama/runtime.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { StepLoop } from '../../engine/scheduler/step-loop.js';
import { endlessEmbedded, random150m } from '../support/models.js';
import { keep, keptRows, type Row } from '../support/results.js';
import { median } from '../support/stats.js';

const SEATS = 8;
const CONTEXT = 512;
const PROMPT = 150;
const REPLY = 16;
const BYTES = 2 ** 28;

/** Requests of a run before those that are measured, these, and pairs of runs. */
const RUNS = {
  // By then it is found that none comes back (save-pace.ts).
  embedded: { make: endlessEmbedded, before: 200, requests: 300, pairs: 10 },
  first: { make: endlessEmbedded, before: 0, requests: 120, pairs: 10 },
  '150m': { make: random150m, before: 0, requests: 24, pairs: 6 },
} as const;

interface Cost {
  /** Of all threads. */
  readonly cpuMs: number;
  readonly wallMs: number;
}

/** Of a new one each time, by chance. */
let random = 1;
function prompt(): Uint32Array {
  return Uint32Array.from({ length: PROMPT }, () => {
    random = (Math.imul(random, 1_103_515_245) + 12_345) >>> 0;
    return 60 + ((random >>> 16) % 90);
  });
}

/** As many callers as seats, each asking again once it is answered. Returns what one request took. */
async function run(runtime: Runtime, bytes: number, before: number, requests: number): Promise<Cost> {
  const done = new Map<number, () => void>();
  const loop = new StepLoop(
    runtime.decoder,
    runtime.tokens,
    {
      seats: SEATS,
      contextPerSeat: CONTEXT,
      prefillTokensPerStep: runtime.prefillTokensPerStep,
      prefillShare: 50,
      prefixReuse: 'auto',
      origin: { weights: runtime.weightVersion, kv: runtime.kv },
      prefixCache: { bytes, maxAgeMs: 3_600_000, available: availableMemory },
    },
    (_, outputs) => {
      for (const { id, kind } of outputs) if (kind === 'done') done.get(id)?.();
    },
  );
  let next = 0;
  const caller = async (last: number): Promise<void> => {
    while (next < last) {
      const id = ++next;
      const ended = new Promise<void>((resolve) => done.set(id, resolve));
      const sampling = { temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: 1 };
      const rest = { n: 1, seats: 1, stops: [], scope: 'one', maxTokens: REPLY, ...sampling };
      loop.generate(id, { prompt: tokenPrompt(prompt()), ...rest });
      await ended;
    }
  };
  await Promise.all(Array.from({ length: SEATS }, () => caller(before)));
  const [from, cpu] = [performance.now(), process.cpuUsage()];
  await Promise.all(Array.from({ length: SEATS }, () => caller(before + requests)));
  const { user, system } = process.cpuUsage(cpu);
  const cost = { cpuMs: (user + system) / 1000 / requests, wallMs: (performance.now() - from) / requests };
  await loop.forget('one');
  await loop.close();
  return cost;
}

/** The median, and the interval that has it with a probability of at least 95 %, whatever the values' distribution. */
function interval(values: readonly number[]): string {
  const sorted = [...values].sort((a, b) => a - b);
  const n = sorted.length;
  let outside = 0.5 ** n;
  let cut = 0;
  for (let term = outside, k = 1; k < n / 2; k += 1) {
    term *= (n - k + 1) / k;
    if (2 * (outside + term) > 0.05) break;
    outside += term;
    cut = k;
  }
  const text = (value = NaN): string => value.toFixed(2);
  return `${text(median(values))} (${text(sorted[cut])} to ${text(sorted[n - 1 - cut])})`;
}

/** One row alone: the others stay as they were. */
const only = process.argv[2];
const name = 'cache-cost';

const rows: Row[] = [];
for (const [model, { make, before, requests, pairs }] of Object.entries(RUNS)) {
  if (only !== undefined && only !== model) {
    rows.push(...(await keptRows(name)).filter((row) => row['model'] === model));
    continue;
  }
  const runtime = await loadRuntime({
    file: await make(),
    kind: 'chat',
    seats: SEATS,
    contextPerSeat: CONTEXT,
    threads: 1,
    gpu: false,
    flashAttention: 'auto',
    prefillTokensPerStep: 0,
    prefillShare: 50,
    prefixReuse: 'auto',
    heartbeatMs: 1000,
  });
  await run(runtime, BYTES, before, requests);
  const on: Cost[] = [];
  const off: Cost[] = [];
  for (let pair = 0; pair < pairs; pair += 1) {
    const both = [
      async (): Promise<unknown> => on.push(await run(runtime, BYTES, before, requests)),
      async (): Promise<unknown> => off.push(await run(runtime, 0, before, requests)),
    ];
    for (const one of pair % 2 === 0 ? both : both.reverse()) await one();
  }
  const more = (of: keyof Cost): number[] => on.map((cost, at) => 100 * (cost[of] / (off[at]?.[of] ?? NaN) - 1));
  rows.push({
    model,
    'requests before': before,
    'requests a run': requests,
    pairs,
    'processor ms a request, without': median(off.map(({ cpuMs }) => cpuMs)),
    'more with it, %': interval(more('cpuMs')),
    'wall ms a request, without': median(off.map(({ wallMs }) => wallMs)),
    'more wall time with it, %': interval(more('wallMs')),
  });
  process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
  await runtime.dispose();
}

await keep(name, {
  title: 'What the prefix cache costs where no prompt comes back',
  about: [
    `${SEATS} callers on ${SEATS} sequences, prompts of ${PROMPT} tokens that all differ, greedy replies of ${REPLY}, 1 compute thread, in the engine's process without a sidecar. Pairs of runs, with a cache of ${BYTES / 2 ** 20} MiB and without, which of them first in turn; medians of the pairs' ratios, in parentheses the interval of at least 95 %. \`embedded\`: the bundled model, after 200 requests of which none came back; \`first\`: its first requests.`,
  ],
  rows,
});
