import type { AddonContext } from './addon-context.js';

export const NO_LOGITS = new Uint32Array(0);
/** Any token of which nothing is read. */
export const ANY_TOKEN = Uint32Array.of(0);

/** Decodes any token in an empty sequence. Rejects as the addon does. */
export function decodeOne(context: AddonContext, sequence: number): Promise<void> {
  context.initBatch(1);
  context.addToBatch(sequence, 0, ANY_TOKEN, NO_LOGITS);
  return context.decodeBatch();
}
