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

/** Longer gaps cost more than they save: at 25 by the times above, fewer where attention reads much. */
const MOST_IDS = 16;

/** What to close, in the order of ids; of a gap all sequences or none. `context`: tokens that a sequence can hold. */
export function gapsOf(parts: readonly Part[], sequences: Pick<BatchSequences, 'next'>, context: number): Gap[] {
  const gaps: Gap[] = [];
  for (const [i, { sequence }] of parts.entries()) {
    const before = parts[i - 1]?.sequence ?? sequence;
    if (sequence - before > 1 + MOST_IDS) continue;
    const gap: Gap[] = [];
    for (let id = before + 1; id < sequence; id += 1) {
      const position = sequences.next(id);
      if (position === undefined || position >= context) break;
      gap.push({ sequence: id, position });
    }
    if (gap.length === sequence - before - 1) gaps.push(...gap);
  }
  return gaps;
}
