/** Grammars that are evaluated within a step. */
import t from 'tap';
import { GrammarHold, type HoldGrammars } from '../../../engine/llama/grammar-hold.js';
import { InlineGrammars } from '../../../engine/llama/inline-grammars.js';

const END = 0;
const CONTROL = 1;
const TEXTS = ['<end>', '<c>', '{"', 'a', 'b', '"', '":', '1', '2', '12', '}', '<c', '>', 'x'];
const id = (text: string): number => TEXTS.indexOf(text);

const bytes = Buffer.from(TEXTS.join(''));
const starts = Uint32Array.from([0, ...TEXTS.map((_, i) => TEXTS.slice(0, i + 1).join('').length)]);
const vocabulary = { bytes, starts, ends: Uint32Array.of(END) };

const grammars: HoldGrammars = {
  controlTokensBut: (markers) => Uint32Array.from(markers.includes('<c>') ? [] : [CONTROL]),
  isEnd: (token) => token === END,
  take: () => ({ kind: 'mismatch' }),
  masks: () => undefined,
};

async function held(gbnf: string, tokens: readonly number[] = [], markers: readonly string[] = []) {
  const inline = new InlineGrammars(
    () => Promise.resolve(vocabulary),
    () => true,
  );
  await inline.pending;
  const hold = new GrammarHold(grammars, markers, inline);
  return { hold, holds: hold.hold(gbnf, tokens) };
}

const texts = (tokens: Uint32Array): string[] => [...tokens].map((token) => TEXTS[token] ?? '').sort();

t.test('if few characters may follow, the allowed tokens are known before one is sampled', async (t) => {
  const { hold } = await held('root ::= "{\\"" ("a" | "b") "\\":" [0-9]{1,2} "}"');
  const seen: [string, string[]][] = [];
  for (const text of ['{"', 'a', '":', '12', '}']) {
    const { kind, tokens } = hold.limit();
    seen.push([kind, texts(tokens)]);
    hold.accept(id(text));
  }
  t.same(seen, [
    ['only', ['{"']],
    ['only', ['a', 'b']],
    ['only', ['"', '":']],
    ['only', ['1', '12', '2']],
    ['only', ['}']],
  ]);
  t.same(texts(hold.limit().tokens), ['<end>'], 'then the reply may only end');
});

t.test('within a text a token is sampled first, and sampled again if the grammar excludes it', async (t) => {
  const { hold } = await held('root ::= [^"]* "\\""');
  const limit = hold.limit();
  t.same([limit.kind, texts(limit.tokens)], ['but', ['<c>']], 'everything except control tokens');
  t.equal(hold.refused(id('x')), undefined);
  const again = hold.refused(id('":'));
  t.same(again && [again.kind, again.tokens.includes(CONTROL), again.tokens.includes(id('a'))], ['only', false, true]);
  hold.accept(id('x'));
  t.equal(hold.limit(), limit, 'the same object: nothing is set again');
  t.equal(hold.refused(id('":')), again);
});

t.test('a control token that is a marker counts as its name', async (t) => {
  const gbnf = 'root ::= "<c>" "a"';
  t.same(texts((await held(gbnf, [], ['<c>'])).hold.limit().tokens), ['<c', '<c>']);
  t.same(texts((await held(gbnf)).hold.limit().tokens), ['<c']);
});

t.test('tokens that were sampled before are read first', async (t) => {
  const gbnf = 'root ::= "<c>" "a"';
  const { hold, holds } = await held(gbnf, [id('<c'), id('>')]);
  t.same([holds, texts(hold.limit().tokens)], [true, ['a']]);
  t.same(await held(gbnf, [id('x')]).then((made) => [made.holds, made.hold.free]), [false, true]);
});

t.test('a grammar that is invalid, or that no token continues, is a fault', async (t) => {
  const { hold } = await held('root ::= (');
  t.throws(() => hold.limit(), { name: 'GrammarError' });
  const { hold: stuck } = await held('root ::= "<c>" "q"');
  stuck.accept(id('<c'));
  stuck.accept(id('>'));
  t.throws(() => stuck.limit(), { message: 'no token goes on with the grammar' });
});

t.test('a grammar waits for the vocabulary', async (t) => {
  const inline = new InlineGrammars(
    () => Promise.resolve(vocabulary),
    () => true,
  );
  const hold = new GrammarHold(grammars, [], inline);
  t.ok(hold.hold('root ::= "a"', []));
  t.ok(hold.pending);
  await hold.pending;
  t.equal(hold.pending, undefined);
  t.same(texts(hold.limit().tokens), ['a']);
  hold.release();
  t.ok(hold.free);
  t.same(hold.limit(), { kind: 'but', tokens: new Uint32Array(0) });
});
