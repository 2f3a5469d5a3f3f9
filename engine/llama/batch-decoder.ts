import type { LlamaContext } from 'node-llama-cpp';
import type { AddonContext, AddonRun, EngineAddon, AddonPicker } from './native.js';
import { internals, type Internals } from './addon.js';
import { BatchSampler, isFree, samplerOf, type Choice, type Picks } from './batch-sampler.js';
import { BatchSequences } from './batch-sequences.js';
import type {
  Checkpoint,
  Decoder,
  OpenedState,
  Part,
  PartResult,
  Run,
  Sampler,
  Sampling,
  StateNotes,
  WholeState,
} from '../scheduler/decoder.js';
import { asFault, EngineFault } from '../scheduler/faults.js';
import { GrammarConstraint } from './grammar-constraint.js';
import { Grammars } from './grammars.js';
import { watched } from './run.js';
import { stateFacts } from './whole-state.js';
import { NOT_A_NUMBER, NOT_NUMBERS, scored } from './not-a-number.js';
import type { StateElsewhere } from '../protocol/cache-key.js';

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
  readonly truncatable: boolean;
  readonly restoredTruncatable: boolean;
  readonly copyable = true;
  readonly #context: AddonContext;
  readonly #picks: Picks;
  readonly #grammars: Grammars;
  readonly #addon: EngineAddon;
  readonly #sequences: BatchSequences;
  /** Tokens that a sequence can hold, if gaps between sequences are closed; else undefined. */
  readonly #closes: number | undefined;
  /** What a step of a run took lately, ms. */
  #stepMs = Infinity;
  #running: AddonRun | undefined;

  private constructor(
    found: Internals,
    grammars: Grammars,
    sequences: number,
    truncatable: boolean,
    restoredTruncatable: boolean,
    savable: boolean,
    closes: number | undefined,
  ) {
    const { context, Checkpoint, addon } = found;
    this.#closes = closes;
    this.truncatable = truncatable;
    this.restoredTruncatable = restoredTruncatable;
    this.#context = context;
    this.#grammars = grammars;
    this.#addon = addon;
    this.#picks = { addon, context, vocabulary: addon.raVocabularySize(context) };
    this.#sequences = new BatchSequences(context, Checkpoint, sequences, savable, addon.raClearMemory);
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
    const { savable, uniform } = await stateFacts(found.context, found.Checkpoint);
    const anywhere = truncatable && (swaFull || uniform !== false);
    const closes = closesGaps && anywhere ? context.contextSize : undefined;
    // Of cells outside a window llama.cpp saves none, also where it keeps them all.
    const restored = anywhere && uniform !== false;
    const grammars = await Grammars.of(context.model);
    return new BatchDecoder(found, grammars, context.totalSequences, anywhere, restored, savable, closes);
  }

  /** A batch that llama.cpp rejects is undone and retried part by part, once: only the part that caused it fails. */
  async step(parts: readonly Part[], run?: Run): Promise<PartResult[]> {
    const made = run && parts.every(isFree) && (await this.#run(parts, run));
    if (made) return made;
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

  halt(): void {
    this.#running?.halt();
  }

  truncate(sequence: number, length: number): Promise<void> {
    return this.#sequences.truncate(sequence, length);
  }

  copy(target: number, source: number): Promise<void> {
    return this.#sequences.copy(target, source);
  }

  save(sequence: number): Promise<Checkpoint> {
    return this.#sequences.save(sequence);
  }

  restore(sequence: number, checkpoint: Checkpoint): Promise<void> {
    return this.#sequences.restore(sequence, checkpoint);
  }

  saveWhole(sequence: number, notes?: StateNotes): Promise<WholeState> {
    return this.#sequences.saveWhole(sequence, notes);
  }

  restoreWhole(sequence: number, state: WholeState): Promise<void> {
    return this.#sequences.restoreWhole(sequence, state);
  }

  openWhole(elsewhere: StateElsewhere): OpenedState {
    return this.#sequences.openWhole(elsewhere);
  }

  sampler(sampling: Sampling): Sampler {
    return new BatchSampler(this.#picks, sampling, new GrammarConstraint(this.#grammars, sampling.markers));
  }

  isExpensive(stacks: number): boolean {
    return this.#grammars.isExpensive(stacks);
  }

  /** Undefined: its first step failed, and it never was. */
  async #run(parts: readonly Part[], run: Run): Promise<PartResult[] | undefined> {
    const before = this.#sequences.lengths(parts);
    try {
      const choices = parts.map((part) => (part.kind === 'sample' ? samplerOf(part).freely : undefined));
      const { running } = this.#begin(parts, choices, run.most);
      this.#running = running;
      return await watched(running, run, parts.length, this.#stepMs, (steps, stepMs, results) => {
        this.#sequences.ran(parts, before, steps);
        this.#sequences.decoded();
        this.#sequences.judge(parts, results);
        this.#stepMs = stepMs;
      });
    } catch {
      this.#sequences.undo(parts, before);
      return undefined;
    } finally {
      this.#running = undefined;
    }
  }

  async #attempt(parts: readonly Part[]): Promise<Attempt> {
    const before = this.#sequences.lengths(parts);
    try {
      const [only] = parts;
      if (only?.kind === 'embeddings') {
        await decodeImage(this.#context, this.#sequences, this.#addon, only);
        this.#sequences.decoded();
        return { kind: 'decoded', results: [FILLED] };
      }
      const choices = await choicesOf(parts);
      const { running, rows } = this.#begin(parts, choices, 1);
      await running.ended;
      const [picks, scores] = [running.take(), running.scores()];
      this.#sequences.decoded();
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
      this.#sequences.judge(parts, results);
      return { kind: 'decoded', results };
    } catch (error) {
      const undone = this.#sequences.undo(parts, before);
      return { kind: 'failed', fault: asFault(error), undone };
    }
  }

  /** Begins to decode, with tokens picked within the decode. `rows`: of each part's logits, or -1. */
  #begin(
    parts: readonly Part[],
    choices: readonly (Choice | undefined)[],
    most: number,
  ): { readonly running: AddonRun; readonly rows: readonly number[] } {
    const gaps = this.#closes === undefined ? [] : gapsOf(parts, this.#sequences, this.#closes);
    const {
      numbers,
      tokens,
      pickers,
      allowed,
      labels,
      logitIndexes: rows,
    } = described(parts, choices, gaps, this.#sequences);
    const running = this.#addon.raDecodeRun(this.#context, numbers, tokens, pickers, most, labels, allowed);
    // The addon has copied them, and wipes its copy: a closed account's prompt stays in no memory.
    tokens.fill(0);
    return { running, rows };
  }
}

/** Of the parts that are sampled. */
function choicesOf(parts: readonly Part[]): Promise<readonly (Choice | undefined)[]> {
  return Promise.all(parts.map(async (part) => (part.kind === 'sample' ? await samplerOf(part).choice() : undefined)));
}

function resultOf(token: number): PartResult {
  return token === NOT_A_NUMBER ? NOT_NUMBERS : { kind: 'token', token };
}

/** A step's parts as `raDecodeRun` takes them (native.ts). */
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
