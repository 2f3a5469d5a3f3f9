import type { LlamaContext } from 'node-llama-cpp';
import {
  internals,
  type AddonContext,
  type AddonPicker,
  type AddonRun,
  type EngineAddon,
  type Internals,
} from './addon.js';
import {
  BatchSampler,
  isFree,
  NOT_A_NUMBER,
  NOT_NUMBERS,
  samplerOf,
  type Choice,
  type Picks,
} from './batch-sampler.js';
import { BatchSequences, type StateTraits } from './batch-sequences.js';
import type { Decoder, Part, PartResult, Run, Sampler, Sampling } from '../scheduler/decoder.js';
import { asFault, EngineFault } from '../scheduler/faults.js';
import { GrammarConstraint } from './grammar-constraint.js';
import { Grammars } from './grammars.js';
import { stateFacts } from './state-file.js';

const FILLED = { kind: 'filled' } as const;

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
  readonly #context: AddonContext;
  readonly #picks: Picks;
  readonly #grammars: Grammars;
  readonly #addon: EngineAddon;
  /** Tokens that a sequence can hold, if gaps between sequences are closed; else undefined. */
  readonly #closes: number | undefined;
  /** What a step of a run took lately, ms. */
  #stepMs = Infinity;
  #running: AddonRun | undefined;

  private constructor(
    found: Internals,
    grammars: Grammars,
    sequences: number,
    traits: StateTraits,
    closes: number | undefined,
  ) {
    const { context, addon } = found;
    this.#closes = closes;
    this.#context = context;
    this.#grammars = grammars;
    this.#addon = addon;
    this.#picks = { addon, context, vocabulary: addon.raVocabularySize(context) };
    this.states = new BatchSequences(found, sequences, traits);
  }

  /**
   * Takes `context` over: nothing else may use its sequences. `truncatable`: whether the model's past state can be truncated at any
   * position, as far as its file names what prevents it; `swaFull`: whether all cells of windows are kept; `closesGaps`: as a
   * LoadPlan has it. Rejects with a LoadFailure where the layer below is not as in the version that was read.
   */
  static async create(
    context: LlamaContext,
    threads: number,
    truncatable = true,
    swaFull = false,
    closesGaps = false,
  ): Promise<BatchDecoder> {
    const found = internals(context);
    found.context.setThreads(threads);
    const { savable, uniform } = await stateFacts(found.context, found.addon);
    const anywhere = truncatable && (swaFull || uniform !== false);
    const closes = closesGaps && anywhere ? context.contextSize : undefined;
    // Of cells outside a window llama.cpp saves none, also where it keeps them all.
    const traits = { truncatable: anywhere, restoredTruncatable: anywhere && uniform !== false, savable };
    const grammars = await Grammars.of(context.model);
    return new BatchDecoder(found, grammars, context.totalSequences, traits, closes);
  }

  /** A batch that llama.cpp rejects is undone and retried part by part, once: only the part that caused it fails. */
  async step(parts: readonly Part[]): Promise<PartResult[]> {
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

  /** Polls the addon's run for the tokens that it has picked. Where its first step fails, it is made again as a step. */
  async *run(parts: readonly Part[], { most, everyMs }: Run): AsyncGenerator<PartResult[], PartResult[]> {
    if (!parts.every(isFree)) return await this.step(parts);
    const before = this.states.lengths(parts);
    try {
      const choices = parts.map((part) => (part.kind === 'sample' ? samplerOf(part).freely : undefined));
      const { running } = this.#begin(parts, choices, most);
      this.#running = running;
      const ended = new EndOrTime(running.ended);
      const polls = new StepPolls(performance.now(), this.#stepMs, everyMs);
      for (let steps = 0; ;) {
        const isOver = await ended.within(polls.nextMs);
        const picks = running.take();
        const found = picks.length / parts.length;
        polls.polled(performance.now(), found);
        steps += found;
        const results = found === 0 ? [] : tokensOf(picks, parts.length);
        if (found > 0) {
          this.states.ran(parts, before, steps);
          this.states.decoded();
          this.states.judge(parts, results);
          this.#stepMs = polls.stepMs;
        }
        if (isOver) return results;
        if (found > 0) yield results;
      }
    } catch {
      this.states.undo(parts, before);
    } finally {
      this.#running = undefined;
    }
    return await this.step(parts);
  }

  halt(): void {
    this.#running?.halt();
  }

  sampler(sampling: Sampling): Sampler {
    return new BatchSampler(this.#picks, sampling, new GrammarConstraint(this.#grammars, sampling.markers));
  }

  isExpensive(stacks: number): boolean {
    return this.#grammars.isExpensive(stacks);
  }

  async #attempt(parts: readonly Part[]): Promise<Attempt> {
    const before = this.states.lengths(parts);
    try {
      const [only] = parts;
      if (only?.kind === 'embeddings') {
        await decodeImage(this.#context, this.states, this.#addon, only);
        this.states.decoded();
        return { kind: 'decoded', results: [FILLED] };
      }
      const choices = await choicesOf(parts);
      const { running, rows } = this.#begin(parts, choices, 1);
      await running.ended;
      const [picks, scores] = [running.take(), running.scores()];
      this.states.decoded();
      const results = await Promise.all(
        parts.map(async (part, i): Promise<PartResult> => {
          if (part.kind === 'score') return scored(scores[i] ?? new Float64Array(0));
          const choice = choices[i];
          if (part.kind !== 'sample' || !choice) return FILLED;
          if (choice.kind === 'fault') return choice.fault;
          const picked = picks[i] ?? NOT_A_NUMBER;
          if (choice.kind === 'free') return resultOf(picked);
          return samplerOf(part)
            .chosen(choice, picked, rows[i] ?? -1)
            .then(resultOf, asFault);
        }),
      );
      this.states.judge(parts, results);
      return { kind: 'decoded', results };
    } catch (error) {
      const undone = this.states.undo(parts, before);
      return { kind: 'failed', fault: asFault(error), undone };
    }
  }

  /** Begins to decode, with tokens picked within the decode. `rows`: of each part's logits, or -1. */
  #begin(
    parts: readonly Part[],
    choices: readonly (Choice | undefined)[],
    most: number,
  ): { readonly running: AddonRun; readonly rows: readonly number[] } {
    const gaps = this.#closes === undefined ? [] : gapsOf(parts, this.states, this.#closes);
    const {
      numbers,
      tokens,
      pickers,
      allowed,
      labels,
      logitIndexes: rows,
    } = described(parts, choices, gaps, this.states);
    const running = this.#addon.raDecodeRun(this.#context, numbers, tokens, pickers, most, labels, allowed);
    // The addon has copied them, and wipes its copy: a closed account's prompt stays in no memory.
    tokens.fill(0);
    return { running, rows };
  }
}

/** The result of a decision's part. */
function scored(logprobs: Float64Array): PartResult {
  return logprobs.some(Number.isNaN) ? NOT_NUMBERS : { kind: 'scores', logprobs };
}

/** Of the parts that are sampled. */
function choicesOf(parts: readonly Part[]): Promise<readonly (Choice | undefined)[]> {
  return Promise.all(parts.map(async (part) => (part.kind === 'sample' ? await samplerOf(part).choice() : undefined)));
}

function resultOf(token: number): PartResult {
  return token === NOT_A_NUMBER ? NOT_NUMBERS : { kind: 'token', token };
}

/** A step's parts as `raDecodeRun` takes them (addon.ts). */
interface DescribedParts {
  readonly numbers: Int32Array;
  readonly tokens: Int32Array;
  readonly pickers: readonly (AddonPicker | undefined)[];
  /** Of parts whose tokens are picked among some. */
  readonly allowed: readonly (Uint32Array | undefined)[];
  /** Of parts that are scored. */
  readonly labels: readonly (Uint32Array | undefined)[];
  /** Of each part the index of its last token; -1: its logits are not wanted. */
  readonly logitIndexes: readonly number[];
}

/** Numbers of a part, and what the last of them means. */
const NUMBERS = 4;
const WANTED = { nothing: 0, logits: 1, gap: 2 } as const;

/** Their tokens count as held in `sequences` from now on, those of `gaps` do not. `choices`: of the parts that are sampled. */
export function described(
  parts: readonly Part[],
  choices: readonly (Choice | undefined)[],
  gaps: readonly Gap[],
  sequences: Pick<BatchSequences, 'extend'>,
): DescribedParts {
  const tokens = new Int32Array(parts.reduce((sum, part) => sum + part.tokens.length, gaps.length));
  const numbers = new Int32Array(NUMBERS * (parts.length + gaps.length));
  const logitIndexes: number[] = [];
  let [at, next, gap] = [0, 0, 0];
  const add = (...given: readonly [sequence: number, first: number, tokens: number, wanted: number]): void => {
    numbers.set(given, next);
    next += NUMBERS;
  };
  for (const part of parts) {
    for (let each = gaps[gap]; each && each.sequence < part.sequence; each = gaps[++gap]) {
      add(each.sequence, each.position, 1, WANTED.gap);
      at += 1;
    }
    tokens.set(part.tokens, at);
    at += part.tokens.length;
    const wanted = part.kind === 'prefill' ? WANTED.nothing : WANTED.logits;
    add(part.sequence, sequences.extend(part), part.tokens.length, wanted);
    logitIndexes.push(wanted === WANTED.logits ? at - 1 : -1);
  }
  const labels = parts.map((part) => (part.kind === 'score' ? part.labels : undefined));
  const pickers = choices.map((choice) => (choice && 'picker' in choice ? choice.picker : undefined));
  const allowed = choices.map((choice) => (choice?.kind === 'held' ? choice.allowed : undefined));
  return { numbers, tokens, pickers, allowed, labels, logitIndexes };
}

/*
 * Gaps between the sequences of a step. llama.cpp computes contiguous ids together (docs/engine.md), and each further run of ids
 * reads all weights again: on an H200 with 8 billion of them 4.1 ms, where one more token takes 0.16 (bench/results/gpu-steps-8b.md).
 * So on a GPU a sequence in between gets a token that is removed after the step.
 */

/** A sequence between those of a step, and where its next token would be. */
interface Gap {
  readonly sequence: number;
  readonly position: number;
}

/** Gaps that cost more than so many sequences without tokens are left: by the times above 25 cost what a run of ids does. */
const MOST_COST = 16;

/** So many tokens that a sequence holds cost as much again: a token's attention reads 128 KiB of each with that model, at 4.8 TB/s. */
const TOKENS_A_COST = 5000;

/** What to close, in the order of ids; of a gap all sequences or none. `context`: tokens that a sequence can hold. */
export function gapsOf(parts: readonly Part[], sequences: Pick<BatchSequences, 'next'>, context: number): Gap[] {
  const gaps: Gap[] = [];
  for (const [i, { sequence }] of parts.entries()) {
    const before = parts[i - 1]?.sequence ?? sequence;
    const gap: Gap[] = [];
    let cost = 0;
    for (let id = before + 1; id < sequence; id += 1) {
      const position = sequences.next(id);
      if (position === undefined || position >= context) break;
      cost += 1 + position / TOKENS_A_COST;
      if (cost > MOST_COST) break;
      gap.push({ sequence: id, position });
    }
    if (gap.length === sequence - before - 1) gaps.push(...gap);
  }
  return gaps;
}

/** Evaluates a part of an image, which is alone in its step; counts it in `sequences`. Rejects as a decode does. */
async function decodeImage(
  context: AddonContext,
  sequences: BatchSequences,
  addon: Pick<EngineAddon, 'raDecodeEmbeddings' | 'raEmbeddingWidth'>,
  part: Extract<Part, { kind: 'embeddings' }>,
): Promise<void> {
  const { sequence, tokens, values, image } = part;
  if (values.length !== tokens.length * addon.raEmbeddingWidth(context))
    throw new EngineFault('embeddings of another number or width');
  const first = sequences.extend(part);
  await addon.raDecodeEmbeddings(context, sequence, first, image.index, image.columns, image.whole, values);
}

/** Waits for the end of a run, or for some time. */
class EndOrTime {
  #ended = false;
  #failure: Error | undefined;
  #wake: () => void = () => undefined;

  constructor(end: Promise<void>) {
    const over = (): void => {
      this.#ended = true;
      this.#wake();
    };
    end.then(over, (error: unknown) => {
      this.#failure = error instanceof Error ? error : new EngineFault('the run failed');
      over();
    });
  }

  /** Resolves with whether it has ended by then. Rejects as the run does. */
  async within(ms: number): Promise<boolean> {
    if (!this.#ended) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    if (this.#failure) throw this.#failure;
    return this.#ended;
  }
}

/** The picks of some steps for each of the parts. */
function tokensOf(picks: Int32Array, parts: number): PartResult[] {
  return Array.from({ length: parts }, (_, i) => {
    const then: number[] = [];
    for (let at = i + parts; at < picks.length; at += parts) then.push(picks[at] ?? -1);
    const token = picks[i] ?? -1;
    return token === NOT_A_NUMBER || then.includes(NOT_A_NUMBER) ? NOT_NUMBERS : { kind: 'token', token, then };
  });
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
  readonly #everyMs: number;
  #foundAt: number;
  /** The time of a step, as the last poll that found one showed it, and as it is expected of the next one. */
  #tookMs: number;
  #stepMs: number;
  #found = true;

  /**
   * `now`: when the run starts, ms; `stepMs`: the expected time of a step, Infinity if it is not known; `everyMs`: shorter steps are
   * polled together, so often: each poll would make one a quarter longer.
   */
  constructor(now: number, stepMs: number, everyMs: number) {
    this.#foundAt = now;
    this.#tookMs = stepMs;
    this.#stepMs = stepMs;
    this.#everyMs = everyMs;
  }

  /** The expected time of a step. */
  get stepMs(): number {
    return this.#stepMs;
  }

  /** The time from the start, or from the last poll, to the next poll, ms. */
  get nextMs(): number {
    if (this.#stepMs < this.#everyMs) return this.#everyMs;
    if (this.#found && Number.isFinite(this.#stepMs)) return Math.max(LEAST_MS, this.#stepMs * (1 - OF_STEP.early));
    return Math.max(LEAST_MS, Math.min(this.#stepMs * OF_STEP.again, MOST_MS));
  }

  /** A poll at `now` found so many steps. */
  polled(now: number, steps: number): void {
    this.#found = steps > 0;
    if (!this.#found) return;
    const tookMs = (now - this.#foundAt) / steps;
    this.#stepMs = Math.min(tookMs, this.#tookMs * LONGER);
    this.#tookMs = tookMs;
    this.#foundAt = now;
  }
}
