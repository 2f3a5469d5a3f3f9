import { EngineFault } from '../../engine/scheduler/faults.js';

/**
 * Natural log-probabilities of `labels` over the whole vocabulary, in their order, without a copy of it. `logits`: of
 * at least the labels and the token with the highest logit, l_max; `totalWeight`: Σ exp(l − l_max) over the vocabulary.
 * Throws an {@link EngineFault} if a label has none.
 */
export function labelLogprobs(
  labels: Uint32Array,
  logits: ReadonlyMap<number, number>,
  totalWeight: number,
): Float64Array {
  let most = -Infinity;
  for (const logit of logits.values()) most = Math.max(most, logit);
  const logTotal = most + Math.log(totalWeight);
  return Float64Array.from(labels, (label) => {
    const logit = logits.get(label);
    if (logit === undefined) throw new EngineFault('a label has no logit');
    return logit - logTotal;
  });
}
