import t from 'tap';
import { InputTokenizer, type InputLimits } from '../../../engine/prompt/input-tokens.js';
import { fakeVocabulary } from '../../support/fake-vocabulary.js';

const LIMITS: InputLimits = { most: 4096, truncate: false };
const TEMPLATE = '<s>Q {query}\nD {document}<s>A';
const FAKE = { specials: ['<s>'], pairTemplate: TEMPLATE };

type Made = ReturnType<InputTokenizer['ofPairs']>;

/** The tokens of each input. */
function inputsOf(made: Made): number[][] {
  if (made.kind !== 'inputs') return [];
  const { head, tokens, lengths } = made;
  let at = 0;
  return Array.from(lengths, (length) => [...head, ...tokens.subarray(at, (at += length - head.length))]);
}

/** The tokens of a text in which `<s>` is a control token. */
const own = (text: string): number[] =>
  text
    .split('<s>')
    .flatMap((part, i) => [...(i > 0 ? [200_000] : []), ...Array.from(part, (one) => one.charCodeAt(0))]);

t.test('a query is there once, however many documents it is scored with', (t) => {
  const query = 'q'.repeat(1000);
  const documents = Array.from({ length: 500 }, (_, i) => `d${i}`);
  for (const [vocabulary, whole] of [
    [fakeVocabulary(), (document: string) => [1, ...own(query), 2, 3, ...own(document), 2]],
    [
      fakeVocabulary(FAKE),
      (document: string) => own(TEMPLATE.replace('{query}', query).replace('{document}', document)),
    ],
  ] as const) {
    const made = new InputTokenizer(vocabulary).ofPairs(query, documents, LIMITS);
    t.same(inputsOf(made), documents.map(whole));
    const kept = made.kind === 'inputs' ? made.head.length + made.tokens.length : NaN;
    t.ok(kept < 1020 + 500 * 10, `${kept} tokens`);
  }
  t.end();
});

t.test('a document whose beginning changes the tokens before it', (t) => {
  for (const [pairTemplate, words] of [
    [TEMPLATE, ['D x']],
    [TEMPLATE, ['\nD ']],
    [TEMPLATE.replace('\n', ' '), ['D x']],
    [TEMPLATE.replace('D ', ''), ['\nx']],
  ] as const) {
    const vocabulary = fakeVocabulary({ ...FAKE, pairTemplate, words });
    const made = new InputTokenizer(vocabulary).ofPairs('q', ['y', 'x'], LIMITS);
    const text = (document: string): string => pairTemplate.replace('{query}', 'q').replace('{document}', document);
    t.same(
      inputsOf(made),
      [text('y'), text('x')].map((whole) => [...vocabulary.tokenize(whole, true)]),
    );
  }
  t.end();
});

t.test('of a pair that is too long the document’s end is cut off, and of a text its own', (t) => {
  const limits = { most: 16, truncate: true };
  const templated = new InputTokenizer(fakeVocabulary(FAKE)).ofPairs('q', ['a', 'b'.repeat(20)], limits);
  t.same(inputsOf(templated), [own('<s>Q q\nD a<s>A'), own(`<s>Q q\nD ${'b'.repeat(7)}<s>A`)]);
  t.match(templated, { truncated: [1] });
  const inputs = new InputTokenizer(fakeVocabulary());
  t.same(inputsOf(inputs.ofPairs('q', ['b'.repeat(20)], limits)), [[1, 113, 2, 3, ...own('b'.repeat(11)), 2]]);
  t.same(inputsOf(inputs.ofTexts(['a', 'b'.repeat(20)], limits)), [
    [1, 97, 2],
    [1, ...own('b'.repeat(14)), 2],
  ]);
  t.same(inputs.ofPairs('q'.repeat(20), ['a'], limits), { kind: 'too-long', input: 0, tokens: 25, exact: true });
  t.end();
});
