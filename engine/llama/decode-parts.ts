import type { AddonContext } from './addon-context.js';
import type { BatchSequences } from './batch-sequences.js';
import { ANY_TOKEN, NO_LOGITS } from './decode-one.js';
import type { Gap } from './gaps.js';
import type { Part } from '../scheduler/decoder.js';

/** Of a next token's single position. */
const ONE_LOGIT = Uint32Array.of(0);

/**
 * Decodes all parts in one batch, by the addon's own methods. Resolves with the index of each one's logits, or -1. Rejects as the
 * addon does; the gaps are open again in any case.
 */
export async function decodeParts(
  context: AddonContext,
  sequences: Pick<BatchSequences, 'extend'>,
  parts: readonly Part[],
  gaps: readonly Gap[],
): Promise<number[]> {
  const logitIndexes: number[] = [];
  let gap = 0;
  context.initBatch(parts.reduce((sum, { tokens }) => sum + tokens.length, gaps.length));
  for (const part of parts) {
    for (let each = gaps[gap]; each && each.sequence < part.sequence; each = gaps[++gap])
      context.addToBatch(each.sequence, each.position, ANY_TOKEN, NO_LOGITS);
    const { kind, sequence, tokens } = part;
    const last = tokens.length - 1;
    const wanted = kind === 'prefill' ? NO_LOGITS : last === 0 ? ONE_LOGIT : Uint32Array.of(last);
    logitIndexes.push(context.addToBatch(sequence, sequences.extend(part), tokens, wanted)[0] ?? -1);
  }
  try {
    await context.decodeBatch();
  } finally {
    for (const { sequence, position } of gaps) context.removeTokenCellsFromSequence(sequence, position, position + 1);
  }
  return logitIndexes;
}
