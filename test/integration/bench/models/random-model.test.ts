import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { MAKER_VERSION, planHash, writeRandomModel, type ModelPlan } from '../../../../bench/models/random-model.js';
import { ownVocabulary } from '../../../../bench/models/vocabulary-own.js';
import type { ModelShape } from '../../../../bench/models/model-shape.js';
import type { Vocabulary } from '../../../../bench/models/vocabulary.js';
import { readGgufFileInfo } from '../../../../engine/llama/package.js';
import { cpuLlama } from '../../../support/llama.js';

const SHAPE: ModelShape = {
  width: 96,
  layers: 2,
  heads: 6,
  kvHeads: 3,
  feedForward: 160,
  context: 4096,
  weights: 'Q8_0',
};

const VOCABULARY: Vocabulary = {
  size: 3,
  metadata: new Map([['tokenizer.ggml.tokens', { type: 'strings', value: ['a', 'b', 'c'] }]]),
  logFrequencies: Float32Array.of(-1, -2, -3),
};

function plan(more: Partial<ModelPlan> = {}): ModelPlan {
  return { name: 'm', shape: SHAPE, seed: 5, vocabulary: VOCABULARY, ...more };
}

async function sha256(path: string): Promise<string> {
  return createHash('sha256')
    .update(await readFile(path))
    .digest('hex');
}

t.test('the file has the requested metadata and the tensors of the shape', async (t) => {
  const path = join(t.testdir(), 'm.gguf');
  await writeRandomModel(path, plan());
  const { metadata, tensorInfo } = await readGgufFileInfo(path, { logWarnings: false });
  t.match(metadata.general, { architecture: 'llama', name: 'm', file_type: 7, quantization_version: 2 });
  t.match(metadata.llama, {
    vocab_size: 3,
    context_length: 4096,
    embedding_length: 96,
    block_count: 2,
    feed_forward_length: 160,
    attention: { head_count: 6, head_count_kv: 3 },
    rope: { dimension_count: 16, freq_base: 10_000 },
  });
  t.ok(Math.abs((metadata.llama?.attention.layer_norm_rms_epsilon ?? 1) - 1e-5) < 1e-9);
  t.same(metadata.tokenizer, { ggml: { tokens: ['a', 'b', 'c'] } });
  const layer = (n: number): [string, number[], number][] => [
    [`blk.${n}.attn_norm.weight`, [96], 0],
    [`blk.${n}.attn_q.weight`, [96, 96], 8],
    [`blk.${n}.attn_k.weight`, [96, 48], 8],
    [`blk.${n}.attn_v.weight`, [96, 48], 8],
    [`blk.${n}.attn_output.weight`, [96, 96], 8],
    [`blk.${n}.ffn_norm.weight`, [96], 0],
    [`blk.${n}.ffn_gate.weight`, [96, 160], 8],
    [`blk.${n}.ffn_up.weight`, [96, 160], 8],
    [`blk.${n}.ffn_down.weight`, [160, 96], 8],
  ];
  t.same(
    tensorInfo?.map(({ name, dimensions, ggmlType }) => [name, dimensions, ggmlType]),
    [
      ['token_embd.weight', [96, 3], 8],
      ...layer(0),
      ...layer(1),
      ['output_norm.weight', [96], 0],
      ['output.weight', [96, 3], 8],
    ],
  );
});

t.test('the bytes are pinned: a change requires a higher MAKER_VERSION, or old files stay in use', async (t) => {
  const dir = t.testdir();
  const f16 = plan({ shape: { ...SHAPE, weights: 'F16' } });
  await writeRandomModel(join(dir, 'q8'), plan());
  await writeRandomModel(join(dir, 'f16'), f16);
  t.same(
    [MAKER_VERSION, await sha256(join(dir, 'q8')), await sha256(join(dir, 'f16'))],
    [
      1,
      '951615d7d355290634ad0b03d55966f27d568e667dd1c8bb5385bc9e62557b8f',
      '8fbe8d3ec4d2039471b7edfc5fc94d7e5413fe86cc55b5b5786a42df0a3faee3',
    ],
  );
});

t.test(
  'equal plans give equal bytes; another seed or any other difference gives other bytes and another hash',
  async (t) => {
    const dir = t.testdir();
    const plans = [
      plan(),
      plan({ seed: 6 }),
      plan({ name: 'n' }),
      plan({ shape: { ...SHAPE, weights: 'F16' } }),
      plan({ vocabulary: { ...VOCABULARY, logFrequencies: Float32Array.of(-1, -2, -4) } }),
      plan({ vocabulary: { size: 3, metadata: VOCABULARY.metadata } }),
    ];
    const sums = new Set<string>();
    for (const [i, each] of plans.entries()) {
      await writeRandomModel(join(dir, `${i}`), each);
      await writeRandomModel(join(dir, `${i}again`), each);
      const sum = await sha256(join(dir, `${i}`));
      t.equal(await sha256(join(dir, `${i}again`)), sum);
      sums.add(sum);
    }
    t.equal(sums.size, plans.length);
    t.equal(new Set(plans.map(planHash)).size, plans.length);
    t.equal(planHash(plan()), planHash(plan()));
  },
);

t.test('impossible shapes are refused and leave no file', async (t) => {
  const dir = t.testdir();
  const wrong: Partial<ModelShape>[] = [
    { width: 80 },
    { width: 32, heads: 1, kvHeads: 1 },
    { heads: 5 },
    { kvHeads: 4 },
    { feedForward: 100 },
    { layers: 0 },
    { context: 1.5 },
  ];
  for (const part of wrong) {
    const path = join(dir, 'x');
    await t.rejects(writeRandomModel(path, plan({ shape: { ...SHAPE, ...part } })), RangeError, JSON.stringify(part));
  }
  t.same(await readdir(dir), []);
});

t.test('llama.cpp loads each architecture, and its replies are words', async (t) => {
  const dir = t.testdir();
  const llama = await cpuLlama(1);
  for (const architecture of ['llama', 'gemma3', 'lfm2'] as const) {
    const path = join(dir, architecture);
    const shape = { ...SHAPE, layers: 6, architecture };
    await writeRandomModel(path, plan({ shape, vocabulary: ownVocabulary() }));
    const model = await llama.loadModel({ modelPath: path });
    const context = await model.createContext({ contextSize: 128 });
    const sequence = context.getSequence();
    const words: string[] = [];
    for await (const token of sequence.evaluate(model.tokenize('It is', true), { temperature: 1, seed: 1 })) {
      words.push(model.detokenize([token], true));
      if (words.length === 24) break;
    }
    t.ok(words.filter((word) => /^ ?[a-z]+$/i.test(word)).length > 12, `${architecture}: ${words.join('')}`);
    await model.dispose();
  }
  await llama.dispose();
});
