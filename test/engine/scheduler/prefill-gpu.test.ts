/**
 * The step loop on a device whose steps cost about as those of an H200 with 8 billion weights did (bench/results/gpu-steps-8b.md):
 * 4.3 ms for one reply's token and 16 for 64, and a decode of a prompt 8 ms and 0.08 a token. llama.cpp splits a step wherever its
 * sequences' ids are not contiguous, and each part reads all weights (docs/engine.md).
 */
import t from 'tap';
import { LEAST_TOKENS, SHORT_TOKENS } from '../../../engine/scheduler/batch-planner.js';
import type { SeenPart } from '../../support/fake-decoder.js';
import { Bench, job, StepTime, type BenchOptions } from '../../support/step-bench.js';

const CHUNK = 1024;
/** Tokens of the prompts that fill all seats, and the most of their replies. */
const [PROMPT, MOST_TOKENS] = [512, 192];
const FOREVER = 100_000;

const isPrompt = (part: SeenPart): boolean => part.tokens.includes(1);
const promptTokens = (parts: readonly SeenPart[]): number =>
  parts.reduce((sum, part) => sum + (isPrompt(part) ? part.tokens.length : 0), 0);

function stepMs(replies: number, prompt: number): number {
  return (replies > 0 ? 4.1 + 0.186 * replies : 0) + (prompt > 0 ? 8 + 0.08 * prompt : 0);
}

/** A token of each sequence of a contiguous run is computed at once, and the further ones of a prompt after them. */
function decodeMs(parts: readonly SeenPart[]): number {
  const [only] = parts;
  if (only && parts.length === 1 && isPrompt(only)) return stepMs(0, only.tokens.length);
  let ms = 0;
  let run = 0;
  for (const [i, { sequence, tokens }] of parts.entries()) {
    run += 1;
    if (parts[i + 1]?.sequence !== sequence + 1) {
      ms += stepMs(run, 0);
      run = 0;
    }
    if (tokens.length > 1) ms += stepMs(0, tokens.length - 1);
  }
  return ms;
}

/** A bench whose clock is advanced by what each decode takes. */
function device(
  seats: number,
  contextPerSeat: number,
  onStep: (parts: readonly SeenPart[], step: number) => void,
  more: BenchOptions = {},
): { readonly bench: Bench; readonly clock: StepTime } {
  const clock = new StepTime();
  const bench = new Bench(seats, undefined, {
    contextPerSeat,
    prefillTokensPerStep: CHUNK,
    prefillShare: 50,
    leastPrefillTokens: LEAST_TOKENS.gpu,
    prefixReuse: 'off',
    clock,
    ...more,
  });
  bench.decoder.onStep = (step) => {
    const parts = bench.decoder.steps.at(-1) ?? [];
    clock.ms += decodeMs(parts);
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
  more: BenchOptions = {},
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

t.test('with all seats busy, a GPU is given chunks that are worth its decodes, and gaps stay short', async (t) => {
  const [callers, tokens] = [32, 128];
  const { tokensPerSecond, gaps, chunks } = await closedLoop(callers, 256, () => tokens);
  const best = (1000 * tokens) / (stepMs(0, PROMPT) + (tokens * stepMs(callers, 0)) / callers);
  t.ok(tokensPerSecond / best > 0.7, `${(tokensPerSecond / best).toFixed(3)} of what the device could do`);
  t.ok(chunks.length > 100);
  t.ok(
    chunks.every((count) => count >= LEAST_TOKENS.gpu),
    `at least ${Math.min(...chunks)} tokens a chunk`,
  );
  const gap = quantile(gaps, 0.99);
  const bound = stepMs(callers, 0) + stepMs(0, LEAST_TOKENS.gpu) + stepMs(0, SHORT_TOKENS);
  const what = 'a step, a chunk and the end of a prompt';
  t.ok(gap <= bound, `99 of 100 gaps last at most ${gap.toFixed(1)} ms, ${what} ${bound.toFixed(1)}`);
});

t.test('with all seats busy, prefillShare 400 starts prompts sooner and generates more than the default', async (t) => {
  // From half to one and a half times 128, so that replies do not begin and end together.
  const tokensOf = (request: number): number => Math.round(128 * (0.5 + ((request * 37) % 64) / 63));
  for (const callers of [8, 32, 64]) {
    const requests = 4 * callers;
    const before = await closedLoop(callers, requests, tokensOf, { prefillShare: 50 });
    const after = await closedLoop(callers, requests, tokensOf, { prefillShare: 400 });
    const first = quantile(after.firsts, 0.5) / quantile(before.firsts, 0.5);
    const more = after.tokensPerSecond / before.tokensPerSecond;
    const what = `median first token after ${first.toFixed(2)} of the time, ${more.toFixed(2)} times the tokens`;
    t.ok(first < 0.5 && more > 1, `${callers} callers: ${what}`);
  }
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

for (const { share, least } of [
  { share: 50, least: 0.6 },
  { share: 100, least: 0.7 },
  { share: 400, least: 0.83 },
])
  t.test(
    `once steps are measured, prompts that come at once get the speed that prefillShare ${share} leaves`,
    async (t) => {
      const [callers, prompt, tokens] = [64, 512, 128];
      const { bench, clock } = device(callers, prompt + tokens + 1, () => undefined, { prefillShare: share });
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
      t.ok(part > least, `${part.toFixed(3)} of what the device could do`);
    },
  );

t.test('a long prompt is not starved by short ones, for each of which less time must be saved', async (t) => {
  const [replies, long, short] = [16, 3000, 120];
  const longSteps: number[] = [];
  let begun = false;
  const { bench } = device(64, 4000, (parts, step) => {
    if (parts.some((part) => part.sequence === replies && isPrompt(part))) longSteps.push(step);
    if (!begun && step > 2 * replies) {
      begun = true;
      bench.loop.generate(FOREVER, job(long, { maxTokens: 1 }));
    }
    // Another short one every second step: together they would use all that is saved.
    if (begun && step % 2 === 0) bench.loop.generate(FOREVER + step, job(short, { maxTokens: 1 }));
  });
  for (let i = 0; i < replies; i += 1) bench.loop.generate(i + 1, job(10, { maxTokens: 3000 }));
  await bench.ends(FOREVER);
  const waits = longSteps.slice(1).map((step, i) => step - (longSteps[i] ?? NaN));
  t.ok(Math.max(...waits) <= 40, `at most ${Math.max(...waits)} steps between two of its chunks`);
  await bench.loop.close();
});

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
