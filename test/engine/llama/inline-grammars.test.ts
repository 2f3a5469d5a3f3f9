/** Grammars that are evaluated within a step. */
import t from 'tap';
import { GrammarConstraint, type ConstraintGrammars } from '../../../engine/llama/grammar-constraint.js';
import { InlineGrammars } from '../../../engine/llama/inline-grammars.js';

const END = 0;
const CONTROL = 1;
const TEXTS = ['<end>', '<c>', '{"', 'a', 'b', '"', '":', '1', '2', '12', '}', '<c', '>', 'x'];
const id = (text: string): number => TEXTS.indexOf(text);

const bytes = Buffer.from(TEXTS.join(''));
const starts = Uint32Array.from([0, ...TEXTS.map((_, i) => TEXTS.slice(0, i + 1).join('').length)]);
const vocabulary = { bytes, starts, ends: Uint32Array.of(END) };

const grammars: ConstraintGrammars = {
  controlTokensBut: (markers) => Uint32Array.from(markers.includes('<c>') ? [] : [CONTROL]),
  isEnd: (token) => token === END,
  take: () => ({ kind: 'mismatch' }),
  masks: () => undefined,
};

async function constrained(gbnf: string, tokens: readonly number[] = [], markers: readonly string[] = []) {
  const inline = new InlineGrammars(
    () => Promise.resolve(vocabulary),
    () => true,
  );
  await inline.pending;
  const constraint = new GrammarConstraint(grammars, markers, inline);
  return { constraint, holds: constraint.constrain(gbnf, tokens) };
}

const texts = (tokens: Uint32Array): string[] => [...tokens].map((token) => TEXTS[token] ?? '').sort();

t.test('if few characters may follow, the allowed tokens are known before one is sampled', async (t) => {
  const { constraint } = await constrained('root ::= "{\\"" ("a" | "b") "\\":" [0-9]{1,2} "}"');
  const seen: [string, string[]][] = [];
  for (const text of ['{"', 'a', '":', '12', '}']) {
    const { kind, tokens } = constraint.limit();
    seen.push([kind, texts(tokens)]);
    constraint.accept(id(text));
  }
  t.same(seen, [
    ['only', ['{"']],
    ['only', ['a', 'b']],
    ['only', ['"', '":']],
    ['only', ['1', '12', '2']],
    ['only', ['}']],
  ]);
  t.same(texts(constraint.limit().tokens), ['<end>'], 'then the reply may only end');
});

t.test('within a text a token is sampled first, and sampled again if the grammar excludes it', async (t) => {
  const { constraint } = await constrained('root ::= [^"]* "\\""');
  const limit = constraint.limit();
  t.same([limit.kind, texts(limit.tokens)], ['but', ['<c>']], 'everything except control tokens');
  t.equal(constraint.refused(id('x')), undefined);
  const again = constraint.refused(id('":'));
  t.same(again && [again.kind, again.tokens.includes(CONTROL), again.tokens.includes(id('a'))], ['only', false, true]);
  constraint.accept(id('x'));
  t.equal(constraint.limit(), limit, 'the same object: nothing is set again');
  t.equal(constraint.refused(id('":')), again);
});

t.test('a control token that is a marker counts as its name', async (t) => {
  const gbnf = 'root ::= "<c>" "a"';
  t.same(texts((await constrained(gbnf, [], ['<c>'])).constraint.limit().tokens), ['<c', '<c>']);
  t.same(texts((await constrained(gbnf)).constraint.limit().tokens), ['<c']);
});

t.test('tokens that were sampled before are read first', async (t) => {
  const gbnf = 'root ::= "<c>" "a"';
  const { constraint, holds } = await constrained(gbnf, [id('<c'), id('>')]);
  t.same([holds, texts(constraint.limit().tokens)], [true, ['a']]);
  t.same(await constrained(gbnf, [id('x')]).then((made) => [made.holds, made.constraint.free]), [false, true]);
});

t.test('a grammar that is invalid, or that no token continues, is a fault', async (t) => {
  const { constraint } = await constrained('root ::= (');
  t.throws(() => constraint.limit(), { name: 'GrammarError' });
  const { constraint: stuck } = await constrained('root ::= "<c>" "q"');
  stuck.accept(id('<c'));
  stuck.accept(id('>'));
  t.throws(() => stuck.limit(), { message: 'no token goes on with the grammar' });
});

t.test('a grammar waits for the vocabulary', async (t) => {
  const inline = new InlineGrammars(
    () => Promise.resolve(vocabulary),
    () => true,
  );
  const constraint = new GrammarConstraint(grammars, [], inline);
  t.ok(constraint.constrain('root ::= "a"', []));
  t.ok(constraint.pending);
  await constraint.pending;
  t.equal(constraint.pending, undefined);
  t.same(texts(constraint.limit().tokens), ['a']);
  constraint.release();
  t.ok(constraint.free);
  t.same(constraint.limit(), { kind: 'but', tokens: new Uint32Array(0) });
});
