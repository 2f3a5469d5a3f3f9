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

/** Requests before those that are measured, those of a run, and pairs of runs. */
const RUNS = {
  // By then it is found that none comes back (copy-times.ts), and all runs are of the same step loops.
  embedded: { make: endlessEmbedded, before: 200, requests: 100, pairs: 20 },
  first: { make: endlessEmbedded, before: 0, requests: 120, pairs: 12 },
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

/** A step loop over the runtime. Of several, each leaves its sequences empty before another one runs. */
class Engine {
  readonly #loop: StepLoop;
  readonly #done = new Map<number, () => void>();
  #next = 0;
  #scopes = 0;

  /** `bytes`: of the prefix cache. */
  constructor(runtime: Runtime, bytes: number) {
    const limits = {
      seats: SEATS,
      contextPerSeat: CONTEXT,
      prefillTokensPerStep: runtime.prefillTokensPerStep,
      prefillShare: 50,
      prefixReuse: 'auto',
      origin: { weights: '', kv: runtime.kv },
      prefixCache: { bytes, maxAgeMs: 3_600_000, available: availableMemory },
    } as const;
    this.#loop = new StepLoop(runtime.decoder, runtime.tokens, limits, (_, outputs) => {
      for (const { id, kind } of outputs) if (kind === 'done') this.#done.get(id)?.();
    });
  }

  /** As many callers as seats, each asking again once it is answered. Returns what one request took. Keeps nothing. */
  async run(requests: number): Promise<Cost> {
    const scope = `run ${++this.#scopes}`;
    const [from, cpu] = [performance.now(), process.cpuUsage()];
    const last = this.#next + requests;
    await Promise.all(Array.from({ length: SEATS }, () => this.#call(scope, last)));
    const { user, system } = process.cpuUsage(cpu);
    const cost = { cpuMs: (user + system) / 1000 / requests, wallMs: (performance.now() - from) / requests };
    await this.#loop.forget(scope);
    return cost;
  }

  close(): Promise<void> {
    return this.#loop.close();
  }

  async #call(scope: string, last: number): Promise<void> {
    while (this.#next < last) {
      const id = ++this.#next;
      const ended = new Promise<void>((resolve) => this.#done.set(id, resolve));
      const sampling = { temperature: 0, topP: 1, frequencyPenalty: 0, presencePenalty: 0, seed: 1 };
      const rest = { n: 1, seats: 1, stops: [], scope, maxTokens: REPLY, ...sampling };
      this.#loop.generate(id, { prompt: tokenPrompt(prompt()), ...rest });
      await ended;
      this.#done.delete(id);
    }
  }
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
  const on: Cost[] = [];
  const off: Cost[] = [];
  const start = async (bytes: number): Promise<Engine> => {
    const engine = new Engine(runtime, bytes);
    if (before > 0) await engine.run(before);
    return engine;
  };
  const sides = [
    { costs: on, bytes: BYTES },
    { costs: off, bytes: 0 },
  ];
  const kept = new Map<number, Engine>();
  // Pair -1 warms up.
  for (let pair = -1; pair < pairs; pair += 1) {
    for (const { costs, bytes } of pair % 2 === 0 ? sides : sides.toReversed()) {
      const engine = kept.get(bytes) ?? (await start(bytes));
      const cost = await engine.run(requests);
      if (pair >= 0) costs.push(cost);
      if (before > 0) kept.set(bytes, engine);
      else await engine.close();
    }
  }
  for (const engine of kept.values()) await engine.close();
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
    `${SEATS} callers on ${SEATS} sequences, prompts of ${PROMPT} tokens that all differ, greedy replies of ${REPLY}, 1 compute thread, in the engine's process without a sidecar. Pairs of runs, with a cache of ${BYTES / 2 ** 20} MiB and without, which of them first in turn; medians of the pairs' ratios, in parentheses the interval of at least 95 %. \`embedded\`: the bundled model, after 200 requests of which none came back; \`first\`: its first requests, each run of an engine that has saved nothing before.`,
  ],
  rows,
});
