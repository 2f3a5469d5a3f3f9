/** When a reply switches to masks. */
import t from 'tap';
import { GrammarConstraint, type ConstraintGrammars } from '../../../engine/llama/grammar-constraint.js';
import type { GrammarState } from '../../../engine/llama/grammars.js';
import type { MaskConstraint } from '../../../engine/llama/masks.js';

const END = 0;
const STATE = {} as GrammarState;

/** Grammars of which none is expensive by its stacks, and what was read by masks. */
function grammars() {
  const read: number[][] = [];
  const known: ConstraintGrammars = {
    controlTokensBut: () => new Uint32Array(0),
    isEnd: (token) => token === END,
    take: () => ({ kind: 'state', state: STATE }),
    masks: (_gbnf, tokens, stacks): MaskConstraint | undefined => {
      if (stacks === 1) return undefined;
      const own = [...tokens];
      read.push(own);
      return {
        pending: undefined,
        check: () => undefined,
        denied: Uint32Array.of(own.length),
        narrow: undefined,
        accept: (token) => own.push(token),
        release: () => undefined,
      };
    },
  };
  return { known, read };
}

t.test('a reply whose tokens take long switches to masks, with the text read so far', (t) => {
  const { known, read } = grammars();
  const constraint = new GrammarConstraint(known);
  t.ok(constraint.constrain('root ::= "x"', [5, 6]));
  for (const token of [7, 8, 9]) constraint.accept(token, 19);
  t.same([constraint.state, constraint.changes], [STATE, false], 'each took less than the limit');
  constraint.accept(10, 45);
  t.equal(constraint.changes, false, 'a single slow token may be chance');
  constraint.accept(11, 40);
  t.same([constraint.state, constraint.changes], [undefined, true]);
  t.same(read, [[5, 6, 7, 8, 9, 10, 11]]);
  constraint.accept(12, 500);
  constraint.accept(END, 500);
  t.same(read, [[5, 6, 7, 8, 9, 10, 11, 12]], 'once');
  t.end();
});

t.test('a reply that is quick in between, or gets a new grammar, stays in the step', (t) => {
  const { known, read } = grammars();
  const constraint = new GrammarConstraint(known);
  constraint.constrain('root ::= "x"', []);
  for (let i = 0; i < 20; i++) constraint.accept(1, i % 2 === 0 ? 70 : 0);
  t.equal(constraint.changes, true, 'more than the quick ones compensate');
  constraint.release();
  t.ok(constraint.free);
  constraint.constrain('root ::= "x"', []);
  for (let i = 0; i < 20; i++) constraint.accept(1, i % 4 === 0 ? 60 : 0);
  t.equal(constraint.changes, false);
  constraint.constrain('root ::= "y"', []);
  constraint.accept(1, 55);
  t.equal(constraint.changes, false);
  t.equal(read.length, 1);
  t.end();
});
