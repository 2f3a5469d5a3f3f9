import t from 'tap';
import type { AddonContext } from '../../../engine/llama/addon-context.js';
import type { Internals } from '../../../engine/llama/addon.js';
import { BatchSequences } from '../../../engine/llama/batch-sequences.js';
import type { Part } from '../../../engine/scheduler/decoder.js';

const IMAGE = { index: 0, of: 12, columns: 4, positions: 4, whole: false };

t.test('truncating before an image of which only a part was evaluated removes that part', async (t) => {
  const removed: number[][] = [];
  const context = {
    removeTokenCellsFromSequence: (...range: number[]) => removed.push(range) > 0,
    getSequenceKvCacheMinPosition: () => 0,
  };
  const sequences = new BatchSequences(
    context as unknown as AddonContext,
    undefined as unknown as Internals['Checkpoint'],
    1,
    true,
  );
  const text: Part = { kind: 'prefill', sequence: 0, tokens: new Uint32Array(3) };
  const part = {
    kind: 'embeddings',
    sequence: 0,
    tokens: new Uint32Array(8),
    image: IMAGE,
    values: new Float32Array(),
  };
  sequences.extend(text);
  sequences.extend(part as unknown as Part);
  await sequences.truncate(0, 3);
  t.same(removed, [[0, 3, 4]], 'all embeddings of an image are at its first position');
  sequences.extend({ ...text, tokens: new Uint32Array(2) });
  await sequences.truncate(0, 4);
  t.same(removed[1], [0, 4, 5]);
});
