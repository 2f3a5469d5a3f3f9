import t from 'tap';
import { repackedBytes } from '../../../../engine/llama/memory/estimate.js';
import { GgmlType } from '../../../../engine/llama/package.js';

const AVX2 = 'CPU : SSE3 = 1 | AVX = 1 | AVX2 = 1 | FMA = 1 | LLAMAFILE = 1 | REPACK = 1 | ';

function tensor(
  name: string,
  ggmlType: GgmlType,
  ...dimensions: number[]
): Parameters<typeof repackedBytes>[0][number] {
  return { name, ggmlType, dimensions, offset: 0, fileOffset: 0, filePart: 1 };
}

function of(...tensors: readonly ReturnType<typeof tensor>[]): number {
  return repackedBytes([...tensors, tensor('output.weight', GgmlType.F16, 256, 8)], AVX2);
}

t.test('matrices of types that are repacked count with all of their bytes', async (t) => {
  const name = 'blk.0.ffn_up.weight';
  t.equal(of(tensor(name, GgmlType.Q4_0, 256, 8)), 8 * 8 * 18);
  t.equal(of(tensor(name, GgmlType.IQ4_NL, 256, 8)), 8 * 8 * 18);
  t.equal(of(tensor(name, GgmlType.MXFP4, 256, 8)), 8 * 8 * 17);
  t.equal(of(tensor(name, GgmlType.Q4_K, 256, 8)), 8 * 144);
  t.equal(of(tensor('blk.0.ffn_up_exps.weight', GgmlType.Q4_K, 256, 8, 4)), 4 * 8 * 144, 'experts too');
});

t.test('others do not count', async (t) => {
  const name = 'blk.0.ffn_up.weight';
  for (const type of [GgmlType.Q8_0, GgmlType.F16, GgmlType.Q5_K, GgmlType.Q6_K, GgmlType.Q2_K]) {
    t.equal(of(tensor(name, type, 256, 8)), 0, GgmlType[type]);
  }
  t.equal(of(tensor(name, GgmlType.Q4_0, 256, 12)), 0, 'rows whose number is no multiple of eight');
  t.equal(of(tensor('token_embd.weight', GgmlType.Q4_0, 256, 8)), 0, 'looked up, not multiplied');
  const tensors = [tensor(name, GgmlType.Q4_0, 256, 8)];
  t.equal(repackedBytes(tensors, AVX2.replace('AVX2 = 1', 'AVX2 = 0')), 0);
  t.equal(repackedBytes(tensors, AVX2.replace(' REPACK = 1 |', '')), 0);
});

t.test('embeddings that are also the output count, and AVX-512 adds types', async (t) => {
  t.equal(repackedBytes([tensor('token_embd.weight', GgmlType.Q4_0, 256, 8)], AVX2), 8 * 8 * 18);
  const q2 = [tensor('blk.0.ffn_up.weight', GgmlType.Q2_K, 256, 8)];
  t.equal(repackedBytes(q2, AVX2), 0);
  t.equal(repackedBytes(q2, AVX2.replace('AVX2 = 1', 'AVX2 = 1 | AVX512 = 1')), 8 * 84);
});
