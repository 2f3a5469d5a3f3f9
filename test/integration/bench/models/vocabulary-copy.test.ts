import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { CHAT_TEMPLATE } from '../../../../bench/models/chat-template.js';
import { writeGguf } from '../../../../bench/models/gguf-writer.js';
import type { ModelShape } from '../../../../bench/models/model-shape.js';
import { writeRandomModel } from '../../../../bench/models/random-model.js';
import { copyVocabulary } from '../../../../bench/models/vocabulary-copy.js';
import { bundleCheckout } from '../../../support/models.js';
import { cpuLlama } from '../../../support/llama.js';
import { readGgufFileInfo } from '../../../../engine/llama/package.js';

const SHAPE: ModelShape = {
  width: 64,
  layers: 1,
  heads: 2,
  kvHeads: 1,
  feedForward: 64,
  context: 512,
  weights: 'Q8_0',
};

const models = join(await bundleCheckout(), 'models');
const llama = await cpuLlama(1);
t.teardown(() => llama.dispose());

// Byte-level BPE, and SentencePiece with its scores, compared with llama.cpp’s own test texts and tokens.
for (const [name, size] of [
  ['gpt-2', 50_257],
  ['llama-spm', 32_000],
] as const) {
  t.test(`${name}: all keys are copied and texts become the tokens that llama.cpp expects`, async (t) => {
    const source = join(models, `ggml-vocab-${name}.gguf`);
    const path = join(t.testdir(), 'copy.gguf');
    const vocabulary = await copyVocabulary(source);
    t.equal(vocabulary.size, size);
    t.equal(vocabulary.metadata.get('tokenizer.ggml.scores')?.type, name === 'llama-spm' ? 'float32s' : undefined);
    await writeRandomModel(path, { name, shape: SHAPE, seed: 1, vocabulary });
    const [from, to] = await Promise.all([source, path].map((file) => readGgufFileInfo(file, { logWarnings: false })));
    t.same(to?.metadata.tokenizer, { ...from?.metadata.tokenizer, chat_template: CHAT_TEMPLATE });
    t.match(to?.metadata.llama, { vocab_size: size });

    const model = await llama.loadModel({ modelPath: path });
    const texts = (await readFile(`${source}.inp`, 'utf8')).split('\n__ggml_vocab_test__\n');
    const expected = (await readFile(`${source}.out`, 'utf8')).split('\n').map((line) => line.trim());
    t.ok(texts.length > 20);
    texts.forEach((text, i) => t.equal(model.tokenize(text).join(' '), expected[i], JSON.stringify(text.slice(0, 40))));
    const context = await model.createContext({ contextSize: 32, threads: 1 });
    const reply = context.getSequence().evaluate(model.tokenize('Hello'), { temperature: 1, seed: 3 });
    t.ok(Number((await reply.next()).value) < size);
    await reply.return();
    await model.dispose();
  });
}

t.test('a file’s own chat template is kept', async (t) => {
  const file = join(models, 'ggml-vocab-phi-3.gguf');
  const info = await readGgufFileInfo(file, { logWarnings: false });
  const { metadata } = await copyVocabulary(file);
  t.same(metadata.get('tokenizer.chat_template'), { type: 'string', value: info.metadata.tokenizer.chat_template });
});

t.test('a file without a vocabulary, with an unknown key, or that is no GGUF is refused', async (t) => {
  const dir = t.testdir({ 'text.gguf': 'no GGUF at all, only text' });
  await t.rejects(copyVocabulary(join(dir, 'text.gguf')));
  await t.rejects(copyVocabulary(join(dir, 'missing.gguf')));
  await writeGguf(join(dir, 'empty.gguf'), new Map([['general.architecture', { type: 'string', value: 'llama' }]]), []);
  await t.rejects(copyVocabulary(join(dir, 'empty.gguf')), /no vocabulary/);
  await writeGguf(
    join(dir, 'odd.gguf'),
    new Map([
      ['tokenizer.ggml.tokens', { type: 'strings', value: ['a'] }],
      ['tokenizer.ggml.novelty', { type: 'int32', value: 3 }],
    ]),
    [],
  );
  await t.rejects(copyVocabulary(join(dir, 'odd.gguf')), /tokenizer\.ggml\.novelty/);
});
