/**
 * Gaps between the sequences of a step. llama.cpp computes contiguous ids together (docs/engine.md), and each further run of ids
 * reads all weights again: on an H200 with 8 billion of them 4.1 ms, where one more token takes 0.16 (bench/results/gpu-steps-8b.md).
 * So on a GPU a sequence in between gets a token that is removed after the step.
 */
import type { BatchSequences } from './batch-sequences.js';
import type { Part } from '../scheduler/decoder.js';

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
