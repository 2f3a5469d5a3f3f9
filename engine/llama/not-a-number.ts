/** Replies whose logits are not numbers, such as after an overflow on a GPU. */
import type { PartResult } from '../scheduler/decoder.js';

/** What the native addon picks then (engine/native/next-token.cpp). */
export const NOT_A_NUMBER = -2;

/** The result of such a part. What its sequence holds would spoil the next reply there too. */
export const NOT_NUMBERS: PartResult = { kind: 'fault', reason: 'its logits are not numbers' };

/** The result of a decision's part. */
export function scored(logprobs: Float64Array): PartResult {
  return logprobs.some(Number.isNaN) ? NOT_NUMBERS : { kind: 'scores', logprobs };
}
