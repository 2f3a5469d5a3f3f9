/**
 * What a long prompt costs the replies beside it, and what protecting them costs the prompt: the effect of
 * `prefillShare`.
 */
import { SEND_MS } from '../../engine/scheduler/outbox.js';
import { EngineDriver, randomJob, type Job } from '../support/engine-driver.js';
import { random13m, random150m } from '../support/models.js';
import { keep, keptRows, type Row } from '../support/results.js';
import { median, quantile } from '../support/stats.js';

const PROMPT_TOKENS = 4000;
const STREAMS = 8;
/** Tokens of each reply before the long prompt arrives. */
const QUIET_TOKENS = 64;
const CONTEXT = 6144;

/**
 * The measurement is divided into parts, each compared with itself: replies grow meanwhile, and their steps with them.
 */
const PARTS = 10;

/** Between two arrivals of a reply's tokens, ms, how many tokens it had then, and how many of them came with the second arrival. */
interface Gap {
  readonly ms: number;
  readonly tokens: number;
  readonly came: number;
}

/** Gaps between a reply's tokens from QUIET_TOKENS on, as many with the long prompt beside them as without. */
interface Trade {
  readonly undisturbed: readonly Gap[];
  readonly disturbed: readonly Gap[];
  /** The tokens of each reply in the end. */
  readonly tokens: number;
  readonly ttftMs: number;
}

/** `native`: the addon of `make engine-native` is in place. */
const build = process.argv[2] === 'native' ? 'native' : 'prebuilt';
/** One model alone: the rows of the others stay as they were. */
const only = process.argv[3];
const name = 'engine-prefill';

const rows: Row[] = [];
for (const [model, make, shares, times] of [
  ['13m', random13m, [25, 50, 75, 100, 200, 400], 3],
  // A long prompt takes two minutes here.
  ['150m', random150m, [50, 400], 1],
] as const) {
  if (only !== undefined && only !== model) {
    rows.push(...(await keptRows(name)).filter((row) => row['model'] === model));
    continue;
  }
  const file = await make();
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
    const all = (which: 'undisturbed' | 'disturbed'): Gap[] => runs.flatMap((run) => run[which]);
    const [undisturbed, disturbed] = [all('undisturbed').map(({ ms }) => ms), all('disturbed').map(({ ms }) => ms)];
    rows.push({
      model,
      'prefillShare %': prefillShare,
      'gap p50 ms, undisturbed': median(undisturbed),
      'gap p99 ms, undisturbed': quantile(undisturbed, 0.99),
      'gap p50 ms, beside the prompt': median(disturbed),
      'gap p99 ms, beside the prompt': quantile(disturbed, 0.99),
      'ms a token, undisturbed': aToken(all('undisturbed')),
      'p99 of ms a token beside, over undisturbed':
        quantile(all('disturbed').map(each), 0.99) / aToken(all('undisturbed')),
      'the same, over undisturbed in its tenth': withinParts(runs),
      'TTFT of the long prompt, s': median(runs.map((run) => run.ttftMs / 1000)),
    });
    process.stdout.write(`${JSON.stringify(rows.at(-1))}\n`);
  }
}

await keep(name, {
  title: 'A long prompt beside running replies',
  about: [
    `${STREAMS} replies are decoding (greedy) when a prompt of ${PROMPT_TOKENS} tokens comes; gaps are the times between two arrivals of a reply's tokens from the engine process, which lets steps shorter than ${SEND_MS} ms share a message, while the prompt is prefilled, and undisturbed: the same tokens of the same replies without it. One compute thread, the ${build} addon, chunks of at most 256 tokens.`,
    '`prefillShare`: time for prompts in one step, in percent of what the step takes without, the fixed cost of one more decode included; on a CPU never fewer than two tokens go.',
    `A small model's gaps are as long as messages wait, and hold several tokens. So what is compared is each gap divided by the tokens that came with it, over the time of all undisturbed gaps divided by all their tokens. The replies grow on the way, a slow model's by up to 2,000 tokens, and their undisturbed steps with them: that ratio compares a p99 that lies at the end of the way with a mean of all of it. So the way is also cut into ${PARTS} parts by the tokens that the replies have, each gap is compared with the undisturbed ones of its own part, and what is shown is the p99 of these.`,
  ],
  rows,
});

/** The same tokens of the same replies with a long prompt, and without. */
async function trade(engine: EngineDriver): Promise<Trade> {
  const { gaps: disturbed, tokens, ttftMs } = await replies(engine, 'with the prompt');
  const { gaps: undisturbed } = await replies(engine, tokens);
  return { undisturbed, disturbed, tokens, ttftMs };
}

/** Milliseconds that a token took in one gap. */
function each({ ms, came }: Gap): number {
  return ms / came;
}

/** Milliseconds that a token took in all gaps together. NaN for none. */
function aToken(gaps: readonly Gap[]): number {
  return gaps.reduce((sum, { ms }) => sum + ms, 0) / gaps.reduce((sum, { came }) => sum + came, 0);
}

/** The p99 of ms a token beside the prompt, over that of the undisturbed gaps of the same part. */
function withinParts(runs: readonly Trade[]): number {
  const part = ({ tokens: end }: Trade, tokens: number): number =>
    Math.min(PARTS - 1, Math.floor(((tokens - QUIET_TOKENS) / (end - QUIET_TOKENS)) * PARTS));
  const of = (which: 'undisturbed' | 'disturbed', at: number): Gap[] =>
    runs.flatMap((run) => run[which].filter(({ tokens }) => part(run, tokens) === at));
  const ratios = Array.from({ length: PARTS }, (_, at) => {
    const usual = aToken(of('undisturbed', at));
    return of('disturbed', at).map((gap) => each(gap) / usual);
  });
  return quantile(ratios.flat(), 0.99);
}

/**
 * Replies, and when they have run for QUIET_TOKENS a long prompt beside them until its first token; or without one
 * until the last of them has so many tokens.
 */
async function replies(
  engine: EngineDriver,
  until: number | 'with the prompt',
): Promise<{ readonly gaps: readonly Gap[]; readonly tokens: number; readonly ttftMs: number }> {
  const gaps: Gap[] = [];
  const last = new Map<number, { readonly atMs: number; readonly tokens: number }>();
  let tokens = 0;
  let cameMs: number | undefined;
  let ttftMs = NaN;
  await engine.run(
    Array.from({ length: STREAMS }, (_, i) => job(i, 16, CONTEXT - 32)),
    ({ index, output, atMs }) => {
      if (output.kind !== 'piece') return undefined;
      if (index === STREAMS) {
        ttftMs = atMs - (cameMs ?? NaN);
        return 'enough';
      }
      const before = last.get(index);
      last.set(index, { atMs, tokens: output.tokens });
      const came = output.tokens - (before?.tokens ?? output.tokens);
      if (before !== undefined && cameMs !== undefined && came > 0)
        gaps.push({ ms: atMs - before.atMs, tokens: output.tokens, came });
      if (index !== STREAMS - 1) return undefined;
      tokens = output.tokens;
      if (until !== 'with the prompt' && tokens >= until) return 'enough';
      if (cameMs !== undefined || tokens < QUIET_TOKENS) return undefined;
      cameMs = atMs;
      return until === 'with the prompt' ? [job(99, PROMPT_TOKENS, 4)] : undefined;
    },
  );
  return { gaps, tokens, ttftMs };
}

function job(seed: number, promptTokens: number, tokens: number): Job {
  return { kind: 'generate', job: randomJob(seed, { promptTokens, tokens, temperature: 0 }) };
}
