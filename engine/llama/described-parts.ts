import type { AddonPicker } from './native.js';
import type { Choice } from './batch-sampler.js';
import type { BatchSequences } from './batch-sequences.js';
import type { Gap } from './gaps.js';
import type { Part } from '../scheduler/decoder.js';

/** A step's parts as `raDecodeRun` takes them (native.ts). */
export interface DescribedParts {
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
