/** What constrains a reply: a grammar within the step, or masks, and when it changes over to these. */
import t from 'tap';
import { GrammarConstraint, type ConstraintGrammars } from '../../../engine/llama/grammar-constraint.js';
import { hasBit, type TokenBits } from '../../../engine/grammar/mask.js';
import { Grammars, TextTokens } from '../../../engine/llama/grammars.js';
import { FollowedMasks } from '../../../engine/llama/followed-masks.js';
import type { MaskConstraint } from '../../../engine/llama/masks.js';

const END = 0;

/** Grammars of which none is expensive by its stacks, and what was read by masks. */
function grammars() {
  const read: number[][] = [];
  const known: ConstraintGrammars = {
    textTokens: () => new TextTokens(Uint32Array.of(~0)),
    isEnd: (token) => token === END,
    grammar: () => undefined,
    followed: new FollowedMasks(),
    masks: (_gbnf, tokens, stacks): MaskConstraint | undefined => {
      if (stacks === 1) return undefined;
      const own = [...tokens];
      read.push(own);
      return {
        pending: undefined,
        made: { mask: Uint32Array.of(1 << own.length), isNarrow: false },
        accept: (token) => own.push(token),
        release: () => undefined,
      };
    },
  };
  return { known, read };
}

/** A step picks this token alone. */
function accept(constraint: GrammarConstraint, token: number, ms = 0): void {
  constraint.read([token], ms);
  constraint.relieve();
}

t.test('a reply whose tokens take long switches to masks, with the text read so far', (t) => {
  const { known, read } = grammars();
  const constraint = new GrammarConstraint(known);
  t.ok(constraint.constrain('root ::= "x"', []));
  for (const token of [5, 6, 7, 8, 9]) accept(constraint, token, 19);
  t.same([constraint.free, constraint.inline], [false, true], 'each took less than the limit');
  accept(constraint, 10, 45);
  t.equal(constraint.inline, true, 'a single slow token may be chance');
  accept(constraint, 11, 40);
  t.same([constraint.free, constraint.inline], [false, false]);
  t.same(read, [[5, 6, 7, 8, 9, 10, 11]]);
  accept(constraint, 12, 500);
  accept(constraint, END, 500);
  t.same(read, [[5, 6, 7, 8, 9, 10, 11, 12]], 'once');
  t.end();
});

t.test('within a run a reply stays in the step, and goes over to masks with all of its tokens', (t) => {
  const { known, read } = grammars();
  const constraint = new GrammarConstraint(known);
  constraint.constrain('root ::= "x"', []);
  constraint.read([5, 6, 7], 150);
  constraint.read([8]);
  t.same([constraint.inline, read], [true, []]);
  constraint.relieve();
  t.same([constraint.inline, read], [false, [[5, 6, 7, 8]]]);
  t.end();
});

t.test('a reply that is quick in between, or gets a new grammar, stays in the step', (t) => {
  const { known, read } = grammars();
  const constraint = new GrammarConstraint(known);
  constraint.constrain('root ::= "x"', []);
  for (let i = 0; i < 20; i++) accept(constraint, 1, i % 2 === 0 ? 70 : 0);
  t.equal(constraint.inline, false, 'more than the quick ones compensate');
  constraint.release();
  t.ok(constraint.free);
  constraint.constrain('root ::= "x"', []);
  for (let i = 0; i < 20; i++) accept(constraint, 1, i % 4 === 0 ? 59 : 0);
  t.equal(constraint.inline, true);
  constraint.constrain('root ::= "y"', []);
  accept(constraint, 1, 55);
  t.equal(constraint.inline, true);
  t.equal(read.length, 1);
  t.end();
});

const CONTROL = 1;
const TEXTS = ['<end>', '<c>', '{"', 'a', 'b', '"', '":', '1', '2', '12', '}', '<c', '>', 'x'];
const id = (text: string): number => TEXTS.indexOf(text);

const bytes = Buffer.from(TEXTS.join(''));
const starts = Uint32Array.from([0, ...TEXTS.map((_, i) => TEXTS.slice(0, i + 1).join('').length)]);
const vocabulary = { bytes, starts, ends: Uint32Array.of(END) };

const grammarsOf = (): Grammars => new Grammars({ ...vocabulary, control: Uint32Array.of(CONTROL), names: TEXTS });

function constrained(gbnf: string, tokens: readonly number[] = [], markers: readonly string[] = []) {
  const constraint = new GrammarConstraint(grammarsOf(), markers);
  return { constraint, holds: constraint.constrain(gbnf, tokens) };
}

const texts = (bits: TokenBits): string[] => TEXTS.filter((_, token) => hasBit(bits, token)).sort();

t.test('if few characters may follow, the allowed tokens are known before one is sampled', (t) => {
  const { constraint } = constrained('root ::= "{\\"" ("a" | "b") "\\":" [0-9]{1,2} "}"');
  const seen: [string[], boolean][] = [];
  for (const text of ['{"', 'a', '":', '12', '}']) {
    const { first, then, checked } = constraint.limit();
    t.equal(then, undefined);
    seen.push([texts(first), checked]);
    accept(constraint, id(text));
  }
  t.same(seen, [
    [['{"'], false],
    [['a', 'b'], false],
    [['"', '":'], false],
    [['1', '12', '2'], false],
    [['}'], false],
  ]);
  t.same(texts(constraint.limit().first), ['<end>'], 'then the reply may only end');
  t.end();
});

t.test('within a text a token is sampled first, and sampled again if the grammar excludes it', (t) => {
  const { constraint } = constrained('root ::= [^"]* "\\""');
  const { first, then, checked } = constraint.limit();
  t.same([texts(first), then, checked], [TEXTS.filter((text) => text !== '<c>').sort(), undefined, true]);
  t.equal(constraint.refused(id('x')), undefined);
  t.equal(constraint.limit().then, undefined, 'what may come was not needed');
  const again = constraint.refused(id('":'));
  t.same(again && [hasBit(again, CONTROL), hasBit(again, id('":')), hasBit(again, id('a'))], [false, false, true]);
  accept(constraint, id('x'));
  t.same(constraint.limit(), { first, then: again, checked: false, from: undefined }, 'now it is known before');
  t.equal(constraint.limit().then, again, 'the same object');
  t.equal(constraint.refused(id('":')), again);
  t.end();
});

t.test('the time of a mask that is made beside a step counts as that of the next tokens', (t) => {
  for (const ms of [0, 100]) {
    const { known } = grammars();
    const gbnf = 'root ::= [^"]* "\\""';
    const grammar = grammarsOf().grammar(gbnf);
    if (!grammar) throw new Error('unreadable');
    const mask = grammar.mask.bind(grammar);
    grammar.mask = (standing) => {
      for (const from = performance.now(); performance.now() < from + ms;);
      return mask(standing);
    };
    const constraint = new GrammarConstraint({ ...known, grammar: () => grammar });
    constraint.constrain(gbnf, []);
    accept(constraint, id('x'));
    t.equal(constraint.foresee(), true);
    t.equal(constraint.foresee(), false, 'it is known');
    accept(constraint, id('x'));
    t.equal(constraint.inline, ms === 0);
  }
  t.end();
});

t.test('a control token that is a marker counts as its name', (t) => {
  const gbnf = 'root ::= "<c>" "a"';
  t.same(texts(constrained(gbnf, [], ['<c>']).constraint.limit().first), ['<c', '<c>']);
  t.same(texts(constrained(gbnf).constraint.limit().first), ['<c']);
  t.end();
});

t.test('tokens that were sampled before are read first', (t) => {
  const gbnf = 'root ::= "<c>" "a"';
  const { constraint, holds } = constrained(gbnf, [id('<c'), id('>')]);
  t.same([holds, texts(constraint.limit().first)], [true, ['a']]);
  const other = constrained(gbnf, [id('x')]);
  t.same([other.holds, other.constraint.free], [false, true]);
  t.end();
});

t.test('a grammar that is invalid, or that no token continues, is a fault', (t) => {
  const { constraint } = constrained('root ::= (');
  t.throws(() => constraint.limit(), { name: 'GrammarError' });
  const { constraint: stuck } = constrained('root ::= "<c>" "q"');
  accept(stuck, id('<c'));
  accept(stuck, id('>'));
  t.throws(() => stuck.limit(), { message: 'no token goes on with the grammar' });
  t.end();
});
