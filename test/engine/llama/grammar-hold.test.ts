/** When a reply switches to masks. */
import t from 'tap';
import { GrammarHold, type HoldGrammars } from '../../../engine/llama/grammar-hold.js';
import type { GrammarState } from '../../../engine/llama/grammars.js';
import type { MaskHold } from '../../../engine/llama/masks.js';

const END = 0;
const STATE = {} as GrammarState;

/** Grammars of which none is expensive by its stacks, and what was read by masks. */
function grammars() {
  const read: number[][] = [];
  const known: HoldGrammars = {
    controlTokensBut: () => new Uint32Array(0),
    isEnd: (token) => token === END,
    take: () => ({ kind: 'state', state: STATE }),
    masks: (_gbnf, tokens, stacks): MaskHold | undefined => {
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
  const hold = new GrammarHold(known);
  t.ok(hold.hold('root ::= "x"', [5, 6]));
  for (const token of [7, 8, 9]) hold.accept(token, 19);
  t.same([hold.state, hold.changes], [STATE, false], 'each took less than the limit');
  hold.accept(10, 45);
  t.equal(hold.changes, false, 'a single slow token may be chance');
  hold.accept(11, 40);
  t.same([hold.state, hold.changes], [undefined, true]);
  t.same(read, [[5, 6, 7, 8, 9, 10, 11]]);
  hold.accept(12, 500);
  hold.accept(END, 500);
  t.same(read, [[5, 6, 7, 8, 9, 10, 11, 12]], 'once');
  t.end();
});

t.test('a reply that is quick in between, or gets a new grammar, stays in the step', (t) => {
  const { known, read } = grammars();
  const hold = new GrammarHold(known);
  hold.hold('root ::= "x"', []);
  for (let i = 0; i < 20; i++) hold.accept(1, i % 2 === 0 ? 70 : 0);
  t.equal(hold.changes, true, 'more than the quick ones compensate');
  hold.release();
  t.ok(hold.free);
  hold.hold('root ::= "x"', []);
  for (let i = 0; i < 20; i++) hold.accept(1, i % 4 === 0 ? 60 : 0);
  t.equal(hold.changes, false);
  hold.hold('root ::= "y"', []);
  hold.accept(1, 55);
  t.equal(hold.changes, false);
  t.equal(read.length, 1);
  t.end();
});
