import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import fc from 'fast-check';
import type { Token } from 'node-llama-cpp';
import t from 'tap';
import { ownVocabulary } from '../../../../bench/models/vocabulary-own.js';
import { CAPITALISED, LONG_CHARACTERS, MARKS, SYNTAX, WORDS } from '../../../../bench/models/vocabulary-words.js';
import { testModel } from '../../../support/models.js';
import { cpuLlama } from '../../../support/llama.js';
import { anyText } from '../../../support/texts.js';

const SPECIAL =
  '<|endoftext|> <|im_start|> <|im_end|> <think> </think> <tool_call> </tool_call> <tool_response> </tool_response>'.split(
    ' ',
  );

const path = await testModel();
const llama = await cpuLlama(1);
t.teardown(() => llama.dispose());
const words = await llama.loadModel({ modelPath: path, vocabOnly: true });

function only(text: string, special = false): Token | undefined {
  const tokens = words.tokenize(text, special);
  return tokens.length === 1 ? tokens[0] : undefined;
}

t.test('every token occurs once and the file is small', (t) => {
  const vocabulary = ownVocabulary();
  const tokens = vocabulary.metadata.get('tokenizer.ggml.tokens')?.value as string[];
  t.equal(tokens.length, vocabulary.size);
  t.equal(new Set(tokens).size, tokens.length, 'llama.cpp aborts on a repeated token');
  t.equal(vocabulary.logFrequencies?.length, tokens.length);
  t.ok(tokens.length < 4000);
  t.same(ownVocabulary(), vocabulary, 'the same each time');
  t.end();
});

t.test('special tokens: one token each where they are parsed, plain text where they are not', (t) => {
  for (const text of SPECIAL) {
    const token = only(text, true);
    t.not(token, undefined, text);
    t.equal(words.detokenize([token!], true), text);
  }
  t.ok(words.tokenize('<|im_end|>', false).length > 1, 'a control token in plain text stays text');
  t.ok(words.isEogToken(only('<|im_end|>', true)));
  t.ok(words.isEogToken(only('<|endoftext|>', true)));
  t.notOk(words.isEogToken(only('<|im_start|>', true)));
  t.equal(words.tokens.eos, only('<|im_end|>', true));
  t.equal(words.tokens.eot, only('<|im_end|>', true));
  t.equal(words.tokens.shouldPrependBosToken, false);
  t.end();
});

t.test('decision labels: distinct, and one token after each line end of a template', (t) => {
  const labels = 'A B C D E F G H I J K L M N O P Q R S T U V W X Y Z 0 1 2 3 4 5 6 7 8 9 yes no'.split(' ');
  const found = new Set<number>();
  for (const label of labels) {
    for (const before of ['<|im_start|>assistant\n', '<think>\n\n</think>\n\n', ':\n', '?\n\n']) {
      const tokens = words.tokenize(before + label, true);
      t.same(tokens, [...words.tokenize(before, true), only(label)], JSON.stringify(before + label));
    }
    found.add(Number(only(label)));
  }
  t.equal(found.size, labels.length);
  t.end();
});

t.test('each word of the lists is one token', (t) => {
  const spaced = [...WORDS, ...CAPITALISED].flatMap((word) => [word, ` ${word}`]);
  const split = [...spaced, ...MARKS, ...SYNTAX, ...LONG_CHARACTERS].filter((text) => only(text) === undefined);
  t.same(split, []);
  t.end();
});

t.test('every text is restored from its tokens', (t) => {
  const some =
    'Hello, world! 123\n\n\tназдар, 你好, नमस्ते, é\u0301, 👩‍👩‍👧‍👦 🎉\r\n "quoted" don\'t {"a":[1,2]}\u0000\u007f\u00ad';
  t.equal(words.detokenize(words.tokenize(some)), some);
  fc.assert(
    fc.property(anyText({ maxLength: 60 }), (text) => words.detokenize(words.tokenize(text)) === text),
    { numRuns: 500, seed: 1 },
  );
  t.end();
});

t.test('200,000 equal characters do not end a worker thread', async (t) => {
  const worker = new Worker(new URL('../../../support/tokenize-worker.js', import.meta.url), { workerData: path });
  for (const character of ['a', '!', '1', '中', ' ', '\n', "'", '\u0301']) {
    worker.postMessage(character.repeat(200_000));
    const [answer] = (await once(worker, 'message')) as [{ tokens: number; same: boolean }];
    t.ok(answer.same, JSON.stringify(character));
    t.ok(answer.tokens > 1000);
  }
  await worker.terminate();
});

t.test('the whole model loads and evaluates', async (t) => {
  const model = await llama.loadModel({ modelPath: path });
  t.equal(model.trainContextSize, 8192);
  const context = await model.createContext({ contextSize: 64, threads: 1 });
  const got: Token[] = [];
  for await (const token of context
    .getSequence()
    .evaluate(model.tokenize('one two three'), { temperature: 1, seed: 7, yieldEogToken: true })) {
    if (got.push(token) === 5) break;
  }
  t.equal(got.length, 5);
  await model.dispose();
});
