/**
 * A step with drafts of replies that a grammar constrains, or may constrain from some token on. The addon's runs pick all tokens of a step
 * by themselves (engine/native/speculation.h); here the logits after each draft are computed by one decode too, but each token is picked
 * only after the one before it was delivered: by then the reply's text has been read, and its grammar holds the next token. A
 * draft that the grammar forbids is never picked, so it ends the reply's drafts as any other wrong one does.
 */
import { DRAFT_LENGTHS, MOST_LOGITS, type EngineAddon } from './addon.js';
import { described, gapsOf } from './described-parts.js';
import { samplerOf, type Picks } from './batch-sampler.js';
import type { BatchSequences } from './batch-sequences.js';
import type { StepPart, StepResults, PartResult, Run } from '../scheduler/decoder.js';
import { asFault } from '../scheduler/faults.js';

export type SamplePart = Extract<StepPart, { kind: 'sample' }>;

const NONE = new Uint32Array(0);
const NOTHING: PartResult = { kind: 'none' };

/** What it needs of a decoder. */
export interface DraftedStepTools extends Picks {
  readonly addon: EngineAddon;
  readonly states: BatchSequences;
  /** Tokens. */
  readonly vocabulary: number;
  /** Tokens of a decode, and of a sequence. */
  readonly batchSize: number;
  readonly contextSize: number;
  /** Gaps between sequences are closed up to this position; 0: they are not. */
  readonly closesUpTo: number;
  readonly isEnd: (token: number) => boolean;
  /** Makes steps without drafts. */
  readonly plain: (parts: readonly SamplePart[], run: Run, mayFollow: MayFollow) => StepResults;
}

/** Called with the parts of a next step after `steps` that took `ms` each. */
export type MayFollow = (parts: readonly SamplePart[], ms: number, steps: number) => boolean;

/**
 * Yields the parts' tokens, one of each part that still has some, and returns the last ones; at most as many as `run` has for a part.
 * Made without drafts where these would not pay or the decode with them fails. All parts are next tokens of replies.
 */
export async function* draftedStep(tools: DraftedStepTools, parts: readonly SamplePart[], run: Run): StepResults {
  const { states, costs } = tools;
  const before = states.lengths(parts);
  const sequences = parts.length + gapsOf(parts, states, tools.closesUpTo).length;
  const choice = chosenDrafts(tools, parts, before, sequences, run);
  const from = performance.now();
  const decoded = choice === 0 ? undefined : await decodeWide(tools, parts, before, DRAFT_LENGTHS[choice] ?? 0);
  if (!decoded) {
    let most = run.most;
    return yield* tools.plain(parts, run, (next, ms, steps) => {
      for (let i = 0; i < steps; i += 1) costs.learn(sequences, 0, ms);
      most = most.map((each) => each - steps);
      return chosenDrafts(tools, next, states.lengths(next), sequences, { ...run, most }) === 0;
    });
  }
  costs.learn(sequences, choice, performance.now() - from);
  const counts = parts.map(() => 0);
  const open = parts.map(() => true);
  try {
    for (let row = 0; ; row += 1) {
      const results = await Promise.all(
        parts.map(async (part, i): Promise<PartResult> => {
          const { words = [], drafted = 0, firstRow = 0 } = decoded[i] ?? {};
          if (!open[i]) return NOTHING;
          open[i] = false;
          // Its next token waits for a mask, which the round after this one waits for: its further rows are dropped.
          if (row > 0 && samplerOf(part).pending) return NOTHING;
          const result = await samplerOf(part)
            .pickAt(firstRow + row)
            .catch(asFault);
          if (result.kind !== 'token') return result;
          const { token } = result;
          counts[i] = row + 1;
          samplerOf(part).drafts?.feed((before[i] ?? 0) + 1 + row, token);
          open[i] = token === words[row + 1] && !tools.isEnd(token) && row + 1 < (run.most[i] ?? 1);
          const came = row > 0 && row <= drafted ? 1 : 0;
          return {
            kind: 'token',
            token,
            speculation: row === 0 ? { steps: 1, drafted, accepted: 0 } : { steps: 0, drafted: 0, accepted: came },
          };
        }),
      );
      states.judge(parts, results);
      if (!open.some(Boolean)) return results;
      yield results;
    }
  } finally {
    // What was fed is there, and all tokens but the last one of each part.
    for (const [i, { sequence }] of parts.entries())
      await states.truncate(sequence, (before[i] ?? 0) + Math.max(1, counts[i] ?? 0));
  }
}

/** The index of the number of drafts. */
function chosenDrafts(
  { costs, vocabulary, batchSize, contextSize }: DraftedStepTools,
  parts: readonly SamplePart[],
  before: readonly number[],
  sequences: number,
  { most, stepMs }: Pick<Run, 'most' | 'stepMs'>,
): number {
  const expected = new Float64Array(DRAFT_LENGTHS.length);
  const mayVary = parts.every((part) => samplerOf(part).mayVary);
  for (const [i, part] of parts.entries()) {
    const { drafts, constraint } = samplerOf(part);
    drafts?.feed(before[i] ?? 0, part.tokens[0] ?? 0);
    // Which masks of the thread are known is not looked at here, as it is by the addon.
    const own = constraint.free || constraint.inline ? drafts?.expected(mayVary || sequences > 1) : undefined;
    for (const choice of expected.keys())
      expected[choice] = (expected[choice] ?? 0) + Math.min(own?.[choice] ?? 1, most[i] ?? 1);
  }
  const tokens = Math.min(batchSize, MOST_LOGITS / vocabulary);
  const fits = (drafts: number): boolean =>
    sequences * (drafts + 1) <= tokens && Math.max(...before) + drafts < contextSize;
  const last = DRAFT_LENGTHS.findLastIndex(fits);
  return last <= 0 ? 0 : costs.choose(sequences, expected, last, stepMs, mayVary);
}

/** What a decode has of a part: its token and the drafts after it, and where the logits of the first one are. */
interface Decoded {
  readonly words: readonly number[];
  /** Drafts that are no padding. */
  readonly drafted: number;
  readonly firstRow: number;
}

/** Decodes each part's token with as many drafts. Undefined if it failed, and the sequences hold what they held. */
async function decodeWide(
  { addon, context, states, closesUpTo }: DraftedStepTools,
  parts: readonly SamplePart[],
  before: readonly number[],
  drafts: number,
): Promise<readonly Decoded[] | undefined> {
  const gaps = gapsOf(parts, states, closesUpTo - drafts);
  const wide = parts.map((part) => {
    const [fed = 0] = part.tokens;
    const found = samplerOf(part).drafts?.draft(drafts) ?? new Int32Array(0);
    const words = [fed, ...found, ...Array<number>(drafts - found.length).fill(fed)];
    return { words, drafted: found.length, part: { ...part, tokens: Uint32Array.from(words) } };
  });
  const widened = wide.map(({ part }) => part);
  const given = described(widened, [], gaps, states, drafts + 1);
  try {
    const running = addon.raDecodeRun(context, given.numbers, given.tokens, [], NONE, given.labels, []);
    given.tokens.fill(0);
    await running.ended;
    states.decoded();
  } catch {
    states.undo(widened, before);
    return undefined;
  }
  return wide.map(({ words, drafted }, i) => ({ words, drafted, firstRow: (given.logitIndexes[i] ?? 0) - drafts }));
}
