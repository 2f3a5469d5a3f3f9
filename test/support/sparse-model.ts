import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { aligned, encodeHead, tensorBytes, type TensorDescription } from '../../bench/models/gguf-format.js';
import { modelMetadata } from '../../bench/models/random-model.js';
import { planFor } from '../../bench/models/recipes.js';

/** Each layer has most of its weights here. */
const FEED_FORWARD = 2 ** 20;

/**
 * Path of a model in `dir` with at least so many bytes of weights, all of them zero and none of them on the disk:
 * llama.cpp reads its head like any other. Never load it.
 */
export async function sparseModel(dir: string, bytes: number): Promise<string> {
  const tiny = planFor('tiny');
  const { width, heads, kvHeads } = tiny.shape;
  const layers = Math.ceil(bytes / (3 * width * FEED_FORWARD * 2));
  const shape = { ...tiny.shape, layers, feedForward: FEED_FORWARD };
  const norm = (name: string): TensorDescription => ({ name, type: 'F32', dimensions: [width] });
  const matrix = (name: string, columns: number, rows: number): TensorDescription => ({
    name,
    type: 'F16',
    dimensions: [columns, rows],
  });
  const layer = (n: number): TensorDescription[] => [
    norm(`blk.${n}.attn_norm.weight`),
    matrix(`blk.${n}.attn_q.weight`, width, width),
    matrix(`blk.${n}.attn_k.weight`, width, (width / heads) * kvHeads),
    matrix(`blk.${n}.attn_v.weight`, width, (width / heads) * kvHeads),
    matrix(`blk.${n}.attn_output.weight`, width, width),
    norm(`blk.${n}.ffn_norm.weight`),
    matrix(`blk.${n}.ffn_gate.weight`, width, FEED_FORWARD),
    matrix(`blk.${n}.ffn_up.weight`, width, FEED_FORWARD),
    matrix(`blk.${n}.ffn_down.weight`, FEED_FORWARD, width),
  ];
  const tensors = [
    matrix('token_embd.weight', width, tiny.vocabulary.size),
    ...Array.from({ length: layers }, (_, n) => layer(n)).flat(),
    norm('output_norm.weight'),
    matrix('output.weight', width, tiny.vocabulary.size),
  ];
  const head = encodeHead(modelMetadata({ ...tiny, shape }), tensors);
  const path = join(dir, 'sparse.gguf');
  const file = await open(path, 'wx');
  try {
    await file.write(head);
    await file.truncate(tensors.reduce((sum, tensor) => sum + aligned(tensorBytes(tensor)), head.length));
  } finally {
    await file.close();
  }
  return path;
}
