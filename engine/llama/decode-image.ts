import type { AddonContext } from './addon-context.js';
import type { EngineAddon } from './native.js';
import type { BatchSequences } from './batch-sequences.js';
import type { Part } from '../scheduler/decoder.js';
import { EngineFault } from '../scheduler/faults.js';

/** Evaluates a part of an image, which is alone in its step; counts it in `sequences`. Rejects as a decode does. */
export async function decodeImage(
  context: AddonContext,
  sequences: BatchSequences,
  addon: Pick<EngineAddon, 'raDecodeEmbeddings' | 'raEmbeddingWidth'>,
  part: Extract<Part, { kind: 'embeddings' }>,
): Promise<void> {
  const { sequence, tokens, values, image } = part;
  if (values.length !== tokens.length * addon.raEmbeddingWidth(context))
    throw new EngineFault('embeddings of another number or width');
  const first = sequences.extend(part);
  await addon.raDecodeEmbeddings(context, sequence, first, image.index, image.columns, image.whole, values);
}
