/** A step's parts as the addon takes them, with the tokens that close gaps between their sequences. */
import type { StepPart } from '../scheduler/decoder.js';
import { samplerOf, type Choice } from './batch-sampler.js';
import type { BatchSequences } from './batch-sequences.js';

/** Numbers of a part, and what the last of them means. */
const NUMBERS = 4;
const WANTED = { nothing: 0, logits: 1, gap: 2, allLogits: 3 } as const;

/**
 * What `raDecodeRun` takes (addon.ts); `logitIndexes`: of each part's last token, -1: its logits are not wanted. The parts'
 * tokens count as held in `sequences` from now on, those of `gaps` do not. `choices`: of the parts that are sampled. `width`: if
 * it is more than 1, each part has so many tokens, the logits after all of which are wanted, and a gap is closed by as many.
 */
export function described(
  parts: readonly StepPart[],
  choices: readonly (Choice | undefined)[],
  gaps: readonly Gap[],
  sequences: Pick<BatchSequences, 'extend'>,
  width = 1,
) {
  const tokens = new Int32Array(parts.reduce((sum, part) => sum + part.tokens.length, width * gaps.length));
  const numbers = new Int32Array(NUMBERS * (parts.length + gaps.length));
  const logitIndexes: number[] = [];
  let [at, next, gap] = [0, 0, 0];
  const add = (...given: readonly [sequence: number, first: number, tokens: number, wanted: number]): void => {
    numbers.set(given, next);
    next += NUMBERS;
  };
  for (const part of parts) {
    for (let each = gaps[gap]; each && each.sequence < part.sequence; each = gaps[++gap]) {
      add(each.sequence, each.position, width, WANTED.gap);
      at += width;
    }
    tokens.set(part.tokens, at);
    at += part.tokens.length;
    const some = width > 1 ? WANTED.allLogits : WANTED.logits;
    const wanted = part.kind === 'prefill' ? WANTED.nothing : some;
    add(part.sequence, sequences.extend(part), part.tokens.length, wanted);
    logitIndexes.push(wanted === WANTED.nothing ? -1 : at - 1);
  }
  const labels = parts.map((part) => (part.kind === 'score' ? part.labels : undefined));
  const pickers = choices.map((choice) => (choice && 'picker' in choice ? choice.picker : undefined));
  const limits = choices.map((choice) => (choice?.kind === 'held' ? choice.limit : undefined));
  const allowed = limits.map((limit) => limit?.first);
  const again = limits.map((limit) => limit?.then);
  const standings = limits.map((limit) => limit?.from);
  const drafts = parts.map((part, i) => (part.kind === 'sample' && choices[i] ? samplerOf(part).drafts : undefined));
  return { numbers, tokens, pickers, allowed, again, standings, labels, drafts, logitIndexes };
}

/*
 * Gaps between the sequences of a step. llama.cpp computes contiguous ids together (docs/engine.md), and each further run of ids
 * reads all weights again: on an H200 with 8 billion of them 4.1 ms, where one more token takes 0.16 (bench/results/gpu-steps-8b.md).
 * So on a GPU a sequence in between gets a token that is removed after the step.
 */

/** A sequence between those of a step, and where its next token would be. */
export interface Gap {
  readonly sequence: number;
  readonly position: number;
}

/** Gaps that cost more than so many sequences without tokens are left: by the times above 25 cost what a run of ids does. */
const MOST_COST = 16;

/** So many tokens that a sequence holds cost as much again: a token's attention reads 128 KiB of each with that model, at 4.8 TB/s. */
const TOKENS_A_COST = 5000;

/** What to close, in the order of ids; of a gap all sequences or none. `context`: tokens that a sequence can hold. */
export function gapsOf(parts: readonly StepPart[], sequences: Pick<BatchSequences, 'next'>, context: number): Gap[] {
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
