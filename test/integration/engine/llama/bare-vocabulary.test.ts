/** A tokenizer loaded by the addon alone equals the one that node-llama-cpp loads. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import { loadBareTokenizer } from '../../../../engine/llama/bare-vocabulary.js';
import { vocabularyOf } from '../../../../engine/llama/vocabulary.js';
import { cpuLlama } from '../../../support/llama.js';
import { cases } from '../../../support/long-form.js';
import { bundleCheckout } from '../../../support/models.js';

const TEXTS = ['', 'Hello world', '  two  spaces\n\n\t', 'Grüße 日本語 🎉', '<|im_start|>user\n<s></s>[INST] x', '\0'];

/** One of each kind that llama.cpp has here: spm, bpe, wpm. */
const SHORT = ['ggml-vocab-llama-spm.gguf', 'ggml-vocab-qwen2.gguf', 'ggml-vocab-bert-bge.gguf'];

t.test('its tokens, texts and attributes are equal', async (t) => {
  const folder = join(await bundleCheckout(), 'models');
  const all = (await readdir(folder)).filter((name) => name.endsWith('.gguf'));
  t.ok(all.length > 15, `${all.length} vocabularies`);
  const llama = await cpuLlama();
  t.teardown(() => llama.dispose());
  for (const name of cases(all, (each) => SHORT.includes(each))) {
    const modelPath = join(folder, name);
    const [bare, model] = [await loadBareTokenizer(modelPath), await llama.loadModel({ modelPath, vocabOnly: true })];
    t.teardown(() => Promise.all([bare.dispose(), model.dispose()]));
    const [own, theirs] = [vocabularyOf(bare), vocabularyOf(model)];
    const values = (of: object): object => JSON.parse(JSON.stringify(of)) as object;
    t.ok(isDeepStrictEqual(values(own), values(theirs)), name);
    const tokens = (of: typeof theirs): number[][] =>
      TEXTS.flatMap((text) => [true, false].map((special) => [...of.tokenize(text, special)]));
    t.strictSame(tokens(own), tokens(theirs), name);
  }
});

t.test('a file that llama.cpp cannot load is refused', async (t) => {
  const path = join(t.testdir({ 'none.gguf': 'not a model' }), 'none.gguf');
  await t.rejects(loadBareTokenizer(path));
});
