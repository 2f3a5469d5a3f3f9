/**
 * The step loop on a device whose steps cost about as those of an H200 with 8 billion weights did (bench/results/gpu-steps-8b.md):
 * 4.3 ms for one reply's token and 16 for 64, and a decode of a prompt 8 ms and 0.08 a token. llama.cpp splits a step wherever its
 * sequences' ids are not contiguous, and each part reads all weights (docs/engine.md).
 */
import t from 'tap';
import { LEAST_CHUNK } from '../../../engine/scheduler/step-planner.js';
import type { SeenPart } from '../../support/fake-decoder.js';
import { Bench, job, StepTime, type BenchOptions } from '../../support/step-bench.js';

const CHUNK = 1024;
/** The default of `stepMs`. */
const TARGET_MS = 100;
/** Tokens of the prompts that fill all seats, and the most of their replies. */
const [PROMPT, MOST_TOKENS] = [512, 192];

const isPrompt = (part: SeenPart): boolean => part.tokens.includes(1);
const promptTokens = (parts: readonly SeenPart[]): number =>
  parts.reduce((sum, part) => sum + (isPrompt(part) ? part.tokens.length : 0), 0);

function stepMs(replies: number, prompt: number): number {
  return (replies > 0 ? 4.1 + 0.186 * replies : 0) + (prompt > 0 ? 8 + 0.08 * prompt : 0);
}

/**
 * Of each contiguous run of ids llama.cpp takes as many tokens of each sequence as the one with the fewest has, then of those that
 * have more, and so on: each is one pass over all weights.
 */
function decodeMs(parts: readonly SeenPart[], slower = 1): number {
  let ms = 0;
  let run: number[] = [];
  for (const [i, { sequence, tokens }] of parts.entries()) {
    run.push(tokens.length);
    if (parts[i + 1]?.sequence === sequence + 1) continue;
    for (let done = 0; run.length > 0; run = run.filter((count) => count > done)) {
      const count = Math.min(...run) - done;
      ms += count === 1 ? stepMs(run.length, 0) : stepMs(0, run.length * count);
      done += count;
    }
  }
  return slower * ms;
}

interface Options extends BenchOptions {
  /** So many times the time of each decode. */
  readonly slower?: number;
}

/** A bench whose clock is advanced by what each decode takes. */
function device(
  seats: number,
  contextPerSeat: number,
  onStep: (parts: readonly SeenPart[], step: number) => void,
  { slower, ...more }: Options = {},
): { readonly bench: Bench; readonly clock: StepTime } {
  const clock = new StepTime();
  const bench = new Bench(seats, undefined, {
    contextPerSeat,
    prefillTokensPerStep: CHUNK,
    stepMs: TARGET_MS,
    prefixReuse: 'off',
    clock,
    ...more,
  });
  bench.decoder.onStep = (step) => {
    const parts = bench.decoder.steps.at(-1) ?? [];
    clock.ms += decodeMs(parts, slower);
    onStep(parts, step);
  };
  return { bench, clock };
}

interface Loop {
  readonly tokensPerSecond: number;
  /** Between two tokens of a reply, ms. */
  readonly gaps: readonly number[];
  /** From a request to its first token, ms. */
  readonly firsts: readonly number[];
  /** Prompt tokens of each decode of prompts alone, but for those that leave only the last token of a prompt. */
  readonly chunks: readonly number[];
}

/** Callers that send their next request when their reply has ended: prompts of 512 tokens. */
async function closedLoop(
  callers: number,
  requests: number,
  tokensOf: (request: number) => number,
  more: Options = {},
): Promise<Loop> {
  const chunks: number[] = [];
  /** Of the prompt in each sequence. */
  const evaluated = new Map<number, number>();
  const { bench, clock } = device(
    callers,
    PROMPT + MOST_TOKENS + 1,
    (parts) => {
      for (const part of parts) {
        const { sequence, tokens } = part;
        evaluated.set(sequence, isPrompt(part) ? (evaluated.get(sequence) ?? 0) + tokens.length : 0);
      }
      const isEnd = parts.some(({ sequence }) => evaluated.get(sequence) === PROMPT - 1);
      if (parts.every(isPrompt) && !isEnd) chunks.push(promptTokens(parts));
    },
    more,
  );
  const sent = new Map<number, number>();
  const last = new Map<number, number>();
  const gaps: number[] = [];
  const firsts: number[] = [];
  let tokens = 0;
  const send = (): void => {
    const id = sent.size + 1;
    sent.set(id, clock.ms);
    tokens += tokensOf(id);
    bench.loop.generate(id, job(PROMPT, { maxTokens: tokensOf(id) }));
  };
  await new Promise<void>((resolve) => {
    let done = 0;
    bench.onOutputs = (outputs) => {
      for (const { id, kind } of outputs) {
        if (kind === 'piece') {
          const before = last.get(id);
          if (before === undefined) firsts.push(clock.ms - (sent.get(id) ?? 0));
          else gaps.push(clock.ms - before);
          last.set(id, clock.ms);
        }
        if (kind !== 'done') continue;
        done += 1;
        if (sent.size < requests) send();
        if (done === requests) resolve();
      }
    };
    for (let i = 0; i < callers; i += 1) send();
  });
  return { tokensPerSecond: (tokens * 1000) / clock.ms, gaps, firsts, chunks };
}

/** The value below which a share of all lie. */
function quantile(values: readonly number[], share: number): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length * share)] ?? NaN;
}

// From half to one and a half times 128, so that replies do not begin and end together.
const tokensOf = (request: number): number => Math.round(128 * (0.5 + ((request * 37) % 64) / 63));

for (const { callers, firstMs, part } of [
  { callers: 8, firstMs: 450, part: 0.8 },
  { callers: 32, firstMs: 2000, part: 0.8 },
  // What llama-server took on that device, p99.
  { callers: 64, firstMs: 4600, part: 0.8 },
])
  t.test(`${callers} callers, each of which sends when its reply has ended`, async (t) => {
    const { tokensPerSecond, gaps, firsts } = await closedLoop(callers, 6 * callers, tokensOf);
    const best = (1000 * 128) / (stepMs(0, PROMPT) + (128 * stepMs(callers, 0)) / callers);
    const reached = tokensPerSecond / best;
    t.ok(reached > part, `${reached.toFixed(3)} of what the device could do`);
    const [first, gap] = [quantile(firsts, 0.99), quantile(gaps, 0.99)];
    t.ok(first < firstMs, `99 of 100 first tokens after at most ${first.toFixed(0)} ms`);
    t.ok(gap <= 120, `99 of 100 gaps last at most ${gap.toFixed(1)} ms`);
  });

t.test(
  'no first token comes before that of a request that arrived earlier, whatever the lengths of the prompts',
  async (t) => {
    const firsts = new Map<number, number>();
    const { bench, clock } = device(64, 3100, () => undefined);
    const waits = new Map<number, () => void>();
    bench.onOutputs = (outputs) => {
      for (const { id, kind } of outputs) if (kind === 'piece' && !firsts.has(id)) firsts.set(id, clock.ms);
      if (firsts.size === 16) waits.get(16)?.();
    };
    const begun = new Promise<void>((resolve) => waits.set(16, resolve));
    for (let i = 0; i < 16; i += 1) bench.loop.generate(i, job(64, { maxTokens: 400 }));
    await begun;
    for (let i = 16; i < 40; i += 1) bench.loop.generate(i, job([3000, 60, 700][i % 3] ?? 60, { maxTokens: 4 }));
    for (let i = 16; i < 40; i += 1) await bench.ends(i);
    const times = Array.from({ length: 24 }, (_, i) => firsts.get(16 + i) ?? NaN);
    t.same(
      times,
      times.toSorted((a, b) => a - b),
    );
    await bench.loop.close();
  },
);

t.test('a GPU ten times as slow, on which even the least chunk takes longer than the target', async (t) => {
  const { gaps, firsts } = await closedLoop(8, 32, tokensOf, { slower: 10 });
  const least = 10 * (stepMs(8, 0) + stepMs(0, LEAST_CHUNK));
  const gap = quantile(gaps, 0.99);
  t.ok(
    gap <= 1.1 * least,
    `99 of 100 gaps last at most ${gap.toFixed(0)} ms, a step and the least chunk ${least.toFixed(0)}`,
  );
  t.equal(firsts.length, 32, 'nothing starves');
});

t.test('64 prompts that come at once are evaluated at nearly the speed of the device', async (t) => {
  const [callers, prompt, tokens] = [64, 512, 128];
  let gaps = 0;
  const { bench, clock } = device(callers, prompt + tokens + 1, (parts) => {
    const ids = parts.map(({ sequence }) => sequence);
    if (Math.max(...ids) - Math.min(...ids) >= ids.length) gaps += 1;
  });
  for (let i = 0; i < callers; i += 1) bench.loop.generate(i, job(prompt, { maxTokens: tokens }));
  for (let i = 0; i < callers; i += 1) await bench.ends(i);
  const best = callers * stepMs(0, prompt) + (tokens - 1) * stepMs(callers, 0);
  t.ok(best / clock.ms > 0.9, `${(best / clock.ms).toFixed(3)} of what the device could do`);
  t.equal(gaps, 0, 'prompts that wait between replies close the gaps of their sequences');
});

t.test(
  'once steps are measured, prompts that come at once get the speed of the device, but for the replies’ steps',
  async (t) => {
    const [callers, prompt, tokens] = [64, 512, 128];
    const { bench, clock } = device(callers, prompt + tokens + 1, () => undefined);
    const round = async (first: number): Promise<number> => {
      const from = clock.ms;
      const ids = Array.from({ length: callers }, (_, i) => first + i);
      for (const id of ids) bench.loop.generate(id, job(prompt, { maxTokens: tokens }));
      for (const id of ids) await bench.ends(id);
      return clock.ms - from;
    };
    await round(0);
    const best = callers * stepMs(0, prompt) + (tokens - 1) * stepMs(callers, 0);
    const part = best / (await round(callers));
    t.ok(part > 0.92, `${part.toFixed(3)} of what the device could do`);
  },
);

t.test('while all replies wait for their grammars, a prompt is evaluated', async (t) => {
  let release = (): void => undefined;
  const grammars = new Promise<void>((resolve) => (release = resolve));
  let held = false;
  const { bench } = device(
    2,
    6000,
    (_, step) => {
      if (step !== 20) return;
      held = true;
      bench.loop.generate(2, job(5000, { maxTokens: 1 }));
    },
    { pends: ({ seed }) => (held && seed === 1 ? grammars : undefined) },
  );
  bench.loop.generate(1, job(10, { maxTokens: 100, seed: 1 }));
  await bench.ends(2);
  t.pass('it ended before the grammars');
  release();
  await bench.ends(1);
});
