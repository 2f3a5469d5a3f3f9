import t from 'tap';
import { DIGITS, labelTexts, LETTERS, verifyLabels, YES_NO } from '../../../../engine/prompt/labels.js';
import { fakeVocabulary } from '../../../support/fake-vocabulary.js';
import { cases } from '../../../support/long-form.js';
import { sharedVocabulary } from '../../../support/prompt-models.js';

const VOCABULARIES = ['qwen2', 'llama-bpe', 'command-r', 'gemma-4', 'deepseek-llm', 'falcon', 'gpt-2'];

// In the short form small ones, and those that the tests of prompts load: a large one takes seconds.
for (const name of cases(VOCABULARIES, (each) => ['qwen2', 'llama-bpe', 'gpt-2'].includes(each))) {
  t.test(`the labels of ${name}`, async (t) => {
    const vocabulary = await sharedVocabulary(name);
    const tail = '<|im_end|>\n<|im_start|>assistant\n';
    const verified = verifyLabels(vocabulary, '.', [tail]);
    if (verified.kind === 'bad') {
      t.fail(verified.problem);
      return;
    }
    const { yes_no: yesNo, choice, score } = verified.labels;
    t.equal(new Set([...yesNo.tokens, ...choice.tokens, ...score.tokens]).size, 38);
    const before = [...vocabulary.tokenize(`.${tail}`, true)];
    t.same([...vocabulary.tokenize(`.${tail}Z`, true)], [...before, choice.tokens[25]]);
    t.same([...vocabulary.tokenize(`.${tail}no`, true)], [...before, yesNo.tokens[1]]);
    t.same([...vocabulary.tokenize(`.${tail}9`, true)], [...before, score.tokens[9]]);
  });
}

t.test('a label that is not a single token is found', async (t) => {
  const all = [...YES_NO];
  t.match(verifyLabels(fakeVocabulary({ words: all }), ':', ['']), { kind: 'ok' });
  t.match(verifyLabels(fakeVocabulary({ words: ['yes'] }), ':', ['']), {
    kind: 'bad',
    problem: /"no" is not one token/,
  });
  t.match(verifyLabels(fakeVocabulary({ words: [...all, ':Q'] }), ':', ['']), {
    kind: 'bad',
    problem: /"Q" is not one token/,
  });
  const fake = fakeVocabulary({ words: all });
  const folding = {
    ...fake,
    tokenize: (text: string, special: boolean) => fake.tokenize(text.replace('B', 'A'), special),
  };
  t.match(verifyLabels(folding, ':', ['']), { kind: 'bad', problem: /"B" shares its token/ });
});

t.test('a space that ends the tail belongs to the label if the two are one token', async (t) => {
  const vocabulary = await sharedVocabulary('llama-bpe');
  const verified = verifyLabels(vocabulary, '.', ['assistant: ']);
  if (verified.kind === 'bad') {
    t.fail(verified.problem);
    return;
  }
  const { yes_no: yesNo, choice, score } = verified.labels;
  t.same([yesNo.tail, choice.tail, score.tail], ['assistant:', 'assistant:', 'assistant: ']);
  t.same(
    [yesNo.tokens[1], choice.tokens[25]],
    [...vocabulary.tokenize(' no', false), ...vocabulary.tokenize(' Z', false)],
  );
  t.equal(score.tokens[9], vocabulary.tokenize('9', false)[0]);
});

t.test('a tail after which a label is not a token gives way to the next one', async (t) => {
  const vocabulary = fakeVocabulary({ words: [...YES_NO, '>Q'] });
  const verified = verifyLabels(vocabulary, '.', ['<b>', '<a']);
  if (verified.kind === 'bad') {
    t.fail(verified.problem);
    return;
  }
  t.same([verified.labels.yes_no.tail, verified.labels.choice.tail], ['<b>', '<a']);
});

t.test('a question uses as many labels as it has answers, from the first', async (t) => {
  t.same(labelTexts('yes_no', 2), YES_NO);
  t.same(labelTexts('choice', 26), LETTERS);
  t.same(labelTexts('score', 10), DIGITS);
});
