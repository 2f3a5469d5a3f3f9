import type { AddonPicker } from './addon.js';
import { pickerOf } from './batch-sampler.js';
import type { BatchSequences } from './batch-sequences.js';
import type { Part } from '../scheduler/decoder.js';

/** A step's parts as `Picking.run` takes them (addon.ts). */
export interface DescribedParts {
  readonly numbers: Int32Array;
  readonly tokens: Int32Array;
  readonly pickers: readonly (AddonPicker | undefined)[];
}

/** Their tokens count as held in `sequences` from now on. */
export function described(parts: readonly Part[], sequences: Pick<BatchSequences, 'extend'>): DescribedParts {
  const tokens = new Int32Array(parts.reduce((sum, part) => sum + part.tokens.length, 0));
  const numbers = new Int32Array(4 * parts.length);
  let at = 0;
  for (const [i, part] of parts.entries()) {
    tokens.set(part.tokens, at);
    at += part.tokens.length;
    numbers.set([part.sequence, sequences.extend(part), part.tokens.length, part.kind === 'prefill' ? 0 : 1], 4 * i);
  }
  return { numbers, tokens, pickers: parts.map(pickerOf) };
}
