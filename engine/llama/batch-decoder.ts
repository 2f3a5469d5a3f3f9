import type { LlamaContext } from 'node-llama-cpp';
import { internals, type AddonRun, type AddonStepCosts, type Internals } from './addon.js';
import { BatchSampler, NOT_A_NUMBER, NOT_NUMBERS, samplerOf, type Choice } from './batch-sampler.js';
import { BatchSequences, type StateTraits } from './batch-sequences.js';
import { described, gapsOf } from './described-parts.js';
import { draftedStep, type DraftedStepTools, type MayFollow, type SamplePart } from './drafted-step.js';
import type { Decoder, StepPart, StepResults, PartResult, Run, Sampling } from '../scheduler/decoder.js';
import { asFault, EngineFault } from '../scheduler/faults.js';
import { GrammarConstraint } from './grammar-constraint.js';
import { Grammars } from './grammars.js';
import type { PagedStates } from './paged-states.js';
import { type PageLimits, stateFacts } from './state-file.js';

const FILLED = { kind: 'filled' } as const;
const NO_SCORES = new Float64Array(0);

/**
 * What a step of one sequence with 0, 3, 7, 15, 31 or 63 drafts costs over one without (DRAFT_LENGTHS in engine/native/speculation.h).
 * Fixed, so that a request that runs alone drafts as much each time. On a CPU: between what 150 million weights in Q8_0 took on one
 * thread of two machines, on one of which the step without drafts took twice as long as on the other, and each with drafts as long. On a GPU: 8 billion in Q8_0 on an H200, between what
 * a token of so many sequences and a chunk of a prompt took there (bench/results/gpu-steps-8b.md).
 */
export const ALONE_COSTS = { cpu: [1, 2.8, 4.1, 7.4, 15, 20], gpu: [1, 1.4, 1.85, 2.3, 2.8, 3.6] } as const;

type Attempt =
  | { readonly kind: 'decoded'; readonly results: PartResult[] }
  /** `undone`: for each part, whether its sequence's previous state was restored. */
  | { readonly kind: 'failed'; readonly fault: PartResult; readonly undone: readonly boolean[] };

/**
 * The decoder on the layer below node-llama-cpp's iterators (addon.ts), where a step is one llama.cpp batch in sequence
 * order, one decode, and tokens picked within it.
 */
export class BatchDecoder implements Decoder {
  readonly states: BatchSequences;
  /** Memory in which the decoder saves whole states; undefined if it saves them in files. The owner of the context disposes it first. */
  readonly pages: PagedStates | undefined;
  readonly #grammars: Grammars;
  readonly #tools: DraftedStepTools;
  readonly #costs: AddonStepCosts;
  /** What a step of a run took lately, ms. */
  #stepMs = Infinity;
  #running: AddonRun | undefined;
  /** Since the current step began. */
  #halted = false;

  private constructor(
    found: Internals,
    grammars: Grammars,
    sizes: Pick<LlamaContext, 'totalSequences' | 'contextSize' | 'batchSize'>,
    traits: StateTraits,
    closesGaps: boolean,
    device: keyof typeof ALONE_COSTS,
  ) {
    const { context, addon } = found;
    const { totalSequences: sequences, contextSize, batchSize } = sizes;
    const alone = Float64Array.from(ALONE_COSTS[device]);
    this.#costs = new addon.RaStepCosts(alone);
    this.#grammars = grammars;
    this.states = new BatchSequences(found, sequences, traits);
    this.pages = traits.pages;
    this.#tools = {
      addon,
      context,
      states: this.states,
      costs: new addon.RaStepCosts(alone),
      vocabulary: addon.raVocabularySize(context),
      batchSize,
      contextSize,
      closesUpTo: closesGaps ? contextSize : 0,
      isEnd: (token) => grammars.isEnd(token),
      plain: (...given) => this.#runs(...given),
    };
  }

  /**
   * Takes `context` over: nothing else may use its sequences. `truncatable`: whether the model's past state can be truncated at any
   * position, as far as its file names what prevents it; `swaFull`: whether all cells of windows are kept; `closesGaps`: as a
   * LoadPlan has it; `device`: what computes most of it; `limits`: of the memory for states that its device copies by itself. Rejects with a LoadFailure where the layer below is not as in the version that was read.
   */
  static async create(
    context: LlamaContext,
    threads: number,
    truncatable = true,
    swaFull = false,
    closesGaps = false,
    device: keyof typeof ALONE_COSTS = 'cpu',
    limits: PageLimits = { bytes: 0 },
  ): Promise<BatchDecoder> {
    const found = internals(context);
    found.context.setThreads(threads);
    // First: a failure would leave the pages.
    const grammars = await Grammars.of(context.model, () => new found.addon.RaPlaces());
    const { savable, uniform, pages } = await stateFacts(found.context, found.addon, limits);
    const anywhere = truncatable && (swaFull || uniform !== false);
    // Of cells outside a window llama.cpp saves none, also where it keeps them all.
    const restoredTruncatable = anywhere && uniform !== false;
    const traits = { truncatable: anywhere, restoredTruncatable, savable, ...(pages && { pages }) };
    return new BatchDecoder(found, grammars, context, traits, closesGaps && anywhere, device);
  }

  /** A batch that llama.cpp rejects is undone and retried part by part, once: only the part that caused it fails. */
  async #step(parts: readonly StepPart[]): Promise<PartResult[]> {
    const together = await this.#attempt(parts);
    if (together.kind === 'decoded') return together.results;
    if (parts.length === 1) return [together.fault];
    const results: PartResult[] = [];
    for (const [i, part] of parts.entries()) {
      const alone = together.undone[i] === true ? await this.#attempt([part]) : together;
      results.push(alone.kind === 'decoded' ? (alone.results[0] ?? together.fault) : alone.fault);
    }
    return results;
  }

  async *step(parts: readonly StepPart[], run?: Run): StepResults {
    this.#halted = false;
    const samples = parts.filter((part) => part.kind === 'sample');
    if (!run || samples.length < parts.length) return await this.#step(parts);
    const isOfAddon = (part: SamplePart): boolean => part.tokens.length === 1 && !samplerOf(part).constraint.inline;
    if (run.checked !== true && samples.every(isOfAddon)) return yield* this.#runs(samples, run);
    return yield* draftedStep(this.#tools, samples, run);
  }

  /**
   * Polls the addon's run for the tokens that it has picked. Where its first step fails, it is made again as a step. With `mayFollow`
   * grammars constrain some of the replies: a run ends where what may come is found out here, its tokens are reported while the next one
   * computes, and drafts are left to the caller.
   */
  async *#runs(samples: readonly SamplePart[], run: Run, mayFollow?: MayFollow): StepResults {
    const single = mayFollow !== undefined && (run.once === true || run.checked === true);
    let [reported, parts, all] = [performance.now(), samples, 0];
    let unreported: readonly TokenResult[] = [];
    const report = (now: number): readonly PartResult[] => {
      const results = unreported;
      [reported, unreported] = [now, []];
      return results;
    };
    for (;;) {
      const from = performance.now();
      const before = this.states.lengths(parts);
      const asked = parts.map((part) => samplerOf(part).choice());
      if (unreported.length > 0 && asked.some((each) => each instanceof Promise)) yield report(from);
      const choices = await Promise.all(asked.map((each) => Promise.resolve(each)));
      if (choices.some(({ kind }) => kind === 'fault')) break;
      const limited = choices.filter((each) => each.kind === 'held');
      // Without a held one the addon would draft by itself, and with one that it cannot follow it makes one step.
      const goesOn = !mayFollow || (!single && limited.length > 0 && limited.every(({ limit }) => limit.from));
      const given = goesOn ? Object.assign({}, run, { most: run.most.map((each) => each - all) }) : undefined;
      // Before the first pick: each sequence then lacks its last token.
      const lengths = parts.map((part, i) => (before[i] ?? 0) + part.tokens.length - 1);
      // What the sequences hold before the tokens of `parts`, and the steps until then.
      let [held, steps] = [before, 0];
      let failed: readonly PartResult[] | undefined;
      try {
        const costs = goesOn && mayFollow ? this.#tools.costs : this.#costs;
        const { running, rows } = this.#begin(parts, choices, given, costs);
        this.#running = running;
        if (run.once === true || this.#halted) running.halt();
        const endsWithin = endOrTime(running.ended);
        if (unreported.length > 0 && from - reported >= run.everyMs) yield report(from);
        // One at most, beside the step.
        parts.some((part) => samplerOf(part).constraint.foresee());
        const polls = new StepPolls(from, this.#stepMs, run.everyMs);
        for (let [isOver, hasMore] = [false, true]; !isOver || hasMore;) {
          isOver = await endsWithin(goesOn ? polls.nextMs : Infinity);
          const taken = picksOf(running.take(), parts.length);
          hasMore = taken.steps > 0;
          polls.polled(performance.now(), taken.steps);
          if (taken.steps === 0) continue;
          steps += taken.steps;
          for (const [i, { tokens }] of taken.picks.entries()) lengths[i] = (lengths[i] ?? 0) + tokens.length;
          this.states.ran(parts, lengths);
          this.states.decoded();
          const results = await settled(parts, choices, taken, rows);
          this.states.judge(parts, results);
          const made = results.filter((result) => result.kind === 'token');
          if (made.length < parts.length) {
            failed = results;
            continue;
          }
          // Not of a step that failed: it is taken apart from those before, just after them.
          this.#stepMs = polls.stepMs;
          parts = parts.map((part, i) => {
            const { token = 0, then = [] } = made[i] ?? {};
            return Object.assign({}, part, { tokens: Uint32Array.of(then.at(-1) ?? token) });
          });
          held = [...lengths];
          unreported = made.map((each, i) => joined(unreported[i], each));
          if (!isOver) yield report(performance.now());
        }
      } catch {
        this.#running?.halt();
        await this.#running?.ended.catch(() => undefined);
        if (unreported.length > 0) yield report(from);
        this.states.undo(parts, held);
        break;
      } finally {
        this.#running = undefined;
      }
      if (failed && unreported.length > 0) yield report(from);
      if (failed) return failed;
      all += steps;
      if (!mayFollow || steps === 0) return report(from);
      for (const part of parts) samplerOf(part).constraint.relieve();
      const isLast = (part: SamplePart, i: number): boolean =>
        samplerOf(part).pending !== undefined ||
        this.#tools.isEnd(part.tokens[0] ?? 0) ||
        (run.most[i] ?? 0) - all < Math.max(1, run.reserve ?? 1);
      const follows = mayFollow(parts, (performance.now() - from) / steps, steps);
      if (!follows || single || this.#halted || parts.some(isLast)) return report(from);
    }
    if (unreported.length > 0) yield report(reported);
    return await this.#step(parts);
  }

  halt(): void {
    this.#halted = true;
    this.#running?.halt();
  }

  sampler(sampling: Sampling): BatchSampler {
    return new BatchSampler(this.#tools, sampling, new GrammarConstraint(this.#grammars, sampling.markers));
  }

  isExpensive(stacks: number): boolean {
    return this.#grammars.isExpensive(stacks);
  }

  async #attempt(parts: readonly StepPart[]): Promise<Attempt> {
    const before = this.states.lengths(parts);
    try {
      const [only] = parts;
      if (only?.kind === 'embeddings') {
        await decodeImage(this.#tools, only);
        this.states.decoded();
        return { kind: 'decoded', results: [FILLED] };
      }
      const choices = await Promise.all(
        parts.map(async (part) => (part.kind === 'sample' ? await samplerOf(part).choice() : undefined)),
      );
      const { running, rows } = this.#begin(parts, choices);
      await running.ended;
      const [taken, scores] = [picksOf(running.take(), parts.length), running.scores()];
      this.states.decoded();
      const results = await settled(parts, choices, taken, rows, scores);
      this.states.judge(parts, results);
      for (const part of parts) if (part.kind === 'sample') samplerOf(part).constraint.relieve();
      return { kind: 'decoded', results };
    } catch (error) {
      const undone = this.states.undo(parts, before);
      return { kind: 'failed', fault: asFault(error), undone };
    }
  }

  /** Begins to decode, with tokens picked within the decode: one step without `run`. `rows`: of each part's logits, or -1. */
  #begin(
    parts: readonly StepPart[],
    choices: readonly (Choice | undefined)[],
    run?: Run,
    costs = this.#costs,
  ): { readonly running: AddonRun; readonly rows: readonly number[] } {
    const { addon, context, closesUpTo } = this.#tools;
    const gaps = gapsOf(parts, this.states, closesUpTo);
    const given = described(parts, choices, gaps, this.states);
    const { numbers, tokens, pickers, allowed, again, standings, labels, drafts, logitIndexes: rows } = given;
    const running = addon.raDecodeRun(
      context,
      numbers,
      tokens,
      pickers,
      Uint32Array.from(run?.most ?? []),
      labels,
      allowed,
      drafts,
      drafts.some((each) => each !== undefined) ? costs : undefined,
      run?.reserve,
      run?.stepMs,
      again,
      standings,
    );
    // The addon has copied them, and wipes its copy: a closed account's prompt stays in no memory.
    tokens.fill(0);
    return { running, rows };
  }
}

/** Evaluates a part of an image, which is alone in its step; counts it in `states`. Rejects as a decode does. */
async function decodeImage(
  { context, states, addon }: Pick<DraftedStepTools, 'context' | 'states' | 'addon'>,
  part: Extract<StepPart, { kind: 'embeddings' }>,
): Promise<void> {
  const { sequence, tokens, values, image } = part;
  if (values.length !== tokens.length * addon.raEmbeddingWidth(context))
    throw new EngineFault('embeddings of another number or width');
  const first = states.extend(part);
  await addon.raDecodeEmbeddings(context, sequence, first, image.index, image.columns, image.whole, values);
}

/** Waits for the end of a run or for some ms; resolves with whether it has ended by then. Rejects as the run does. */
function endOrTime(end: Promise<void>): (ms: number) => Promise<boolean> {
  let ended = false;
  let wake = (): void => undefined;
  const over = (): void => {
    ended = true;
    wake();
  };
  end.then(over, over);
  return async (ms) => {
    await new Promise<void>((resolve) => {
      const timer = ended || ms === Infinity ? undefined : setTimeout(resolve, ms);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
      if (ended) resolve();
    });
    if (ended) await end;
    return ended;
  };
}

type Picks = ReturnType<typeof picksOf>;

/** What a run's `take` returns (addon.ts), by part. The step in which a pick is not a number, the last one, comes by itself. */
function picksOf(numbers: Int32Array, parts: number) {
  const picks = Array.from({ length: parts }, () => ({ tokens: [] as number[], drafted: 0, accepted: 0 }));
  let steps = 0;
  for (let at = 0; at < numbers.length; steps += 1) {
    for (const each of picks) {
      const [count = 0, drafted = 0] = numbers.subarray(at, at + 2);
      each.tokens.push(...numbers.subarray(at + 2, at + 2 + count));
      each.drafted += drafted;
      each.accepted += Math.min(count - 1, drafted);
      at += 2 + count;
    }
  }
  return { steps, picks };
}

/**
 * The results of steps. A pick of a held reply that the addon has not checked is checked here, and the replies' grammars are told their
 * tokens. `rows`: of each part's logits.
 */
async function settled(
  parts: readonly StepPart[],
  choices: readonly (Choice | undefined)[],
  { steps, picks }: Picks,
  rows: readonly number[],
  scores: readonly Float64Array[] = [],
): Promise<SettledResult[]> {
  const results = parts.map(async (part, i): Promise<SettledResult> => {
    const logprobs = scores[i] ?? NO_SCORES;
    if (part.kind === 'score') return logprobs.some(Number.isNaN) ? NOT_NUMBERS : { kind: 'scores', logprobs };
    const [choice, each] = [choices[i], picks[i]];
    if (part.kind !== 'sample' || !choice || !each) return FILLED;
    if (choice.kind === 'fault') return choice.fault;
    if (choice.kind === 'held' && choice.limit.checked) {
      const [picked = NOT_A_NUMBER] = each.tokens;
      return await samplerOf(part)
        .chosen(choice, picked, rows[i] ?? -1)
        .then((token) => tokensOf({ tokens: [token], drafted: 0, accepted: 0 }, steps), asFault);
    }
    if (choice.kind === 'held') samplerOf(part).read(each.tokens);
    return tokensOf(each, steps);
  });
  return await Promise.all(results);
}

type TokenResult = Required<Extract<PartResult, { kind: 'token' }>>;
type SettledResult = Exclude<PartResult, { kind: 'token' }> | TokenResult;

/** The results of one part from steps that follow each other. */
function joined(first: TokenResult | undefined, next: TokenResult): TokenResult {
  if (!first) return next;
  const [a, b] = [first.speculation, next.speculation];
  const speculation = { steps: a.steps + b.steps, drafted: a.drafted + b.drafted, accepted: a.accepted + b.accepted };
  return { kind: 'token', token: first.token, then: first.then.concat(next.token, next.then), speculation };
}

function tokensOf({ tokens, drafted, accepted }: Picks['picks'][number], steps: number): SettledResult {
  const [token = NOT_A_NUMBER, ...then] = tokens;
  if (tokens.includes(NOT_A_NUMBER)) return NOT_NUMBERS;
  return { kind: 'token', token, then, speculation: { steps, drafted, accepted } };
}

/**
 * When a run is polled for the tokens of its steps: about twice a step, at the time when it is expected to end. The polling thread
 * may share a core with the thread that computes, and each poll then delays the step.
 */

/** Of a step: the first poll comes so much before its expected end, and later ones follow each other after `again`. */
const OF_STEP = { early: 1 / 12, again: 1 / 8 } as const;

/** A step is expected to take at most so many times as long as the one before: a single slow one does not delay the poll after it. */
const LONGER = 5 / 4;

/** Between two polls, ms. */
const LEAST_MS = 1;
/** Between two polls of a step that takes longer than expected, or of which nothing is known, ms. */
const MOST_MS = 8;

export class StepPolls {
  /** The expected time of the next step. Changed by itself alone. */
  stepMs: number;
  readonly #everyMs: number;
  #foundAt: number;
  /** The time of a step, as the last poll that found one showed it. */
  #tookMs: number;
  #found = true;

  /**
   * `now`: when the run starts, ms; `stepMs`: the expected time of a step, Infinity if it is not known; `everyMs`: shorter steps are
   * polled together, so often: each poll would make one a quarter longer.
   */
  constructor(now: number, stepMs: number, everyMs: number) {
    this.#foundAt = now;
    this.#tookMs = stepMs;
    this.stepMs = stepMs;
    this.#everyMs = everyMs;
  }

  /** The time from the start, or from the last poll, to the next poll, ms. */
  get nextMs(): number {
    if (this.stepMs < this.#everyMs) return this.#everyMs;
    if (this.#found && Number.isFinite(this.stepMs)) return Math.max(LEAST_MS, this.stepMs * (1 - OF_STEP.early));
    return Math.max(LEAST_MS, Math.min(this.stepMs * OF_STEP.again, MOST_MS));
  }

  /** A poll at `now` found so many steps. */
  polled(now: number, steps: number): void {
    this.#found = steps > 0;
    if (!this.#found) return;
    const tookMs = (now - this.#foundAt) / steps;
    this.stepMs = Math.min(tookMs, this.#tookMs * LONGER);
    this.#tookMs = tookMs;
    this.#foundAt = now;
  }
}
