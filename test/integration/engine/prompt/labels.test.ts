import t from 'tap';
import { DIGITS, labelTexts, labelTokens, LETTERS, verifyLabels, YES_NO } from '../../../../engine/prompt/labels.js';
import { fakeVocabulary } from '../../../support/fake-vocabulary.js';
import { sharedVocabulary } from '../../../support/prompt-models.js';

for (const name of ['qwen2', 'llama-bpe', 'command-r', 'gemma-4', 'deepseek-llm', 'falcon', 'gpt-2']) {
  t.test(`the labels of ${name}`, async (t) => {
    const vocabulary = await sharedVocabulary(name);
    const tail = '.<|im_end|>\n<|im_start|>assistant\n';
    const verified = verifyLabels(vocabulary, tail);
    if (verified.kind === 'bad') {
      t.fail(verified.problem);
      return;
    }
    const { yesNo, letters, digits } = verified.labels;
    t.equal(new Set([...yesNo, ...letters, ...digits]).size, 38);
    const before = [...vocabulary.tokenize(tail, true)];
    t.same([...vocabulary.tokenize(`${tail}Z`, true)], [...before, letters[25]]);
    t.same([...vocabulary.tokenize(`${tail}no`, true)], [...before, yesNo[1]]);
    t.same([...vocabulary.tokenize(`${tail}9`, true)], [...before, digits[9]]);
  });
}

t.test('a label that is not a single token is found', async (t) => {
  const all = [...YES_NO];
  t.match(verifyLabels(fakeVocabulary({ words: all }), ':'), { kind: 'ok' });
  t.match(verifyLabels(fakeVocabulary({ words: ['yes'] }), ':'), { kind: 'bad', problem: /"no" is not one token/ });
  t.match(verifyLabels(fakeVocabulary({ words: [...all, ':Q'] }), ':'), {
    kind: 'bad',
    problem: /"Q" is not one token/,
  });
  const fake = fakeVocabulary({ words: all });
  const folding = {
    ...fake,
    tokenize: (text: string, special: boolean) => fake.tokenize(text.replace('B', 'A'), special),
  };
  t.match(verifyLabels(folding, ':'), { kind: 'bad', problem: /"B" shares its token/ });
});

t.test('a question uses as many labels as it has answers, from the first', async (t) => {
  const labels = {
    yesNo: Uint32Array.of(1, 2),
    letters: Uint32Array.of(10, 11, 12),
    digits: Uint32Array.of(20, 21, 22),
  };
  t.same([...labelTokens(labels, 'yes_no', 2)], [1, 2]);
  t.same([...labelTokens(labels, 'choice', 2)], [10, 11]);
  t.same([...labelTokens(labels, 'score', 3)], [20, 21, 22]);
  t.same(labelTexts('choice', 26), LETTERS);
  t.same(labelTexts('score', 10), DIGITS);
});
