import type { LlamaContext } from 'node-llama-cpp';
import type { AddonContext } from './addon-context.js';
import { internals, type Internals } from './addon.js';
import type { AddonRun, EngineAddon } from './native.js';
import { BatchSampler, isFree, samplerOf, type Choice, type Picks } from './batch-sampler.js';
import { BatchSequences } from './batch-sequences.js';
import { described } from './described-parts.js';
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
import { asFault } from '../scheduler/faults.js';
import { decodeImage } from './decode-image.js';
import { gapsOf } from './gaps.js';
import { GrammarConstraint } from './grammar-constraint.js';
import { Grammars } from './grammars.js';
import { watched } from './run.js';
import { stateFacts } from './whole-state.js';
import { NOT_A_NUMBER, NOT_NUMBERS, scored } from './not-a-number.js';
import type { StateElsewhere } from '../protocol/shared-state.js';

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
