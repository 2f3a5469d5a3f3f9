/** What a long prompt costs the replies beside it, and what sparing them costs the prompt: the trade of `prefillShare`. */
import { EngineDriver, randomJob } from '../support/engine-driver.js';
import { random13m, random150m } from '../support/models.js';
import { keep, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';

const PROMPT_TOKENS = 4000;
const STREAMS = 8;
/** Gaps seen before the long prompt comes, for the undisturbed figures. */
const QUIET_TOKENS = 64;
const CONTEXT = 6144;

interface Trade {
  readonly quiet: readonly number[];
  readonly disturbed: readonly number[];
  readonly ttftMs: number;
}

const rows: Row[] = [];
for (const [model, file, shares, times] of [
  ['13m', await random13m(), [25, 50, 75, 100, 200, 400], 3],
  // A long prompt takes half a minute here.
  ['150m', await random150m(), [50, 100, 400], 1],
] as const) {
  for (const prefillShare of shares) {
    const engine = await EngineDriver.start(file, STREAMS + 1, {
      contextPerSeat: CONTEXT,
      prefillTokensPerStep: 256,
      prefillShare,
      prefixReuse: 'off',
    });
    // The first one warms up, where there are several.
    if (times > 1) await trade(engine);
    const runs: Trade[] = [];
    for (let i = 0; i < times; i++) runs.push(await trade(engine));
    await engine.close();
    const quiet = runs.flatMap((run) => run.quiet);
    const disturbed = runs.flatMap((run) => run.disturbed);
    rows.push({
      model,
      'prefillShare %': prefillShare,
      'gap p50 ms, undisturbed': median(quiet),
      'gap p99 ms, undisturbed': quantile(quiet, 0.99),
      'gap p50 ms, beside the prompt': median(disturbed),
      'gap p99 ms, beside the prompt': quantile(disturbed, 0.99),
      'p99 beside over p50 undisturbed': quantile(disturbed, 0.99) / median(quiet),
      'TTFT of the long prompt, s': median(runs.map((run) => run.ttftMs / 1000)),
    });
    process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
  }
}

await keep('engine-prefill', {
  title: 'A long prompt beside running replies',
  about: [
    `${STREAMS} replies are decoding (greedy) when a prompt of ${PROMPT_TOKENS} tokens comes; gaps are the times between two steps' tokens of one reply as they arrive from the engine process, before the prompt came and while it was prefilled. One compute thread, chunks of at most 256 tokens.`,
    '`prefillShare`: time for prompts in one step, in percent of what the step takes without, the fixed cost of one more decode included; on a CPU never fewer than four tokens go.',
  ],
  rows,
});

/** One long prompt beside replies that have been under way for QUIET_TOKENS. */
async function trade(engine: EngineDriver): Promise<Trade> {
  const quiet: number[] = [];
  const disturbed: number[] = [];
  const lastMs = new Map<number, number>();
  const tokens = new Map<number, number>();
  let cameMs: number | undefined;
  let ttftMs = NaN;
  const reply = (i: number): { kind: 'generate'; job: ReturnType<typeof randomJob> } => ({
    kind: 'generate',
    job: randomJob(i, { promptTokens: 16, tokens: CONTEXT - 32, temperature: 0 }),
  });
  await engine.run(
    Array.from({ length: STREAMS }, (_, i) => reply(i)),
    ({ index, output, atMs }) => {
      if (output.kind !== 'piece') return undefined;
      if (index === STREAMS) {
        ttftMs = atMs - (cameMs ?? NaN);
        return 'enough';
      }
      const before = lastMs.get(index);
      lastMs.set(index, atMs);
      const count = (tokens.get(index) ?? 0) + 1;
      tokens.set(index, count);
      // The first ones fall into the prompts' own prefill.
      if (before !== undefined && count > 4) (cameMs === undefined ? quiet : disturbed).push(atMs - before);
      if (index !== STREAMS - 1 || count !== QUIET_TOKENS) return undefined;
      cameMs = atMs;
      const job = randomJob(99, { promptTokens: PROMPT_TOKENS, tokens: 4, temperature: 0 });
      return [{ kind: 'generate', job }];
    },
  );
  return { quiet, disturbed, ttftMs };
}
