/** The thread of masks, with a vocabulary of a few tokens. */
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { hasBit } from '../../../engine/grammar/mask.js';
import { Masks, type MaskThread, type MaskVocabulary } from '../../../engine/llama/masks.js';

const TEXTS = ['', 'a', 'b', 'ab', 'c'];
const VOCABULARY: MaskVocabulary = {
  bytes: Buffer.from(TEXTS.join('')),
  starts: Uint32Array.from([0, ...TEXTS.keys()].map((_, i) => TEXTS.slice(0, i).join('').length)),
  ends: Uint32Array.of(0),
};
const [A, B, C] = [1, 2, 4];

/** Masks whose threads the test can end. */
function masks() {
  const threads: Worker[] = [];
  const start = (vocabulary: MaskVocabulary): MaskThread => {
    const thread = new Worker(new URL('../../../engine/llama/mask-worker.js', import.meta.url), {
      workerData: vocabulary,
      execArgv: [],
    });
    threads.push(thread);
    return thread;
  };
  t.teardown(() => Promise.all(threads.map((thread) => thread.terminate())));
  return { masks: new Masks(VOCABULARY, start), threads };
}

t.test('a thread that ends fails its replies, and later ones get another thread', async (t) => {
  const { masks: made, threads } = masks();
  const [first, second] = [made.constrain('root ::= "a" "b" "c"', []), made.constrain('root ::= "ab"', [])];
  await Promise.all([first.pending, second.pending]);
  t.same([hasBit(first.mask, A), hasBit(first.mask, B)], [true, false]);
  await threads[0]?.terminate();

  first.accept(A);
  await first.pending;
  t.throws(() => first.mask, /grammar/, 'with a fault, at its next request');
  const third = made.constrain('root ::= "c"', []);
  await third.pending;
  t.same([hasBit(third.mask, C), hasBit(third.mask, A)], [true, false]);
  t.equal(threads.length, 2);
  second.release();
  first.release();
});

t.test('so does the one whose turn it is, and those after it are served', async (t) => {
  const { masks: made, threads } = masks();
  // Work for as long as the thread lives.
  const expensive = made.constrain(`root ::= ${'("a" | "b" | "ab" | "c")? '.repeat(4000)}`, []);
  const behind = made.constrain('root ::= "c"', []);
  while (threads.length === 0) await new Promise(setImmediate);
  await threads[0]?.terminate();
  await Promise.all([expensive.pending, behind.pending]);
  t.throws(() => expensive.mask, /thread for grammars failed/);
  t.ok(hasBit(behind.mask, C));
  t.equal(threads.length, 2);
});

t.test('tokens that come before the thread is asked are read together', async (t) => {
  const { masks: made } = masks();
  const [before, reply] = [made.constrain('root ::= "c"', []), made.constrain('root ::= "a" "b" "c"', [])];
  reply.accept(A);
  reply.accept(B);
  await Promise.all([before.pending, reply.pending]);
  t.same([hasBit(reply.mask, C), hasBit(reply.mask, A)], [true, false]);
  // Asked again before the first answer, which does not count.
  const other = made.constrain('root ::= "a" "b" "c"', []);
  other.accept(A);
  await other.pending;
  t.same([hasBit(other.mask, B), hasBit(other.mask, A)], [true, false]);
});
