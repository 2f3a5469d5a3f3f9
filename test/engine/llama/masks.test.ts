/** The thread of masks, with a vocabulary of a few tokens. */
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { hasBit, type KnownPlaces } from '../../../engine/grammar/mask.js';
import { Masks, type MaskRequest, type MaskThread, type MaskVocabulary } from '../../../engine/llama/masks.js';

const TEXTS = ['', 'a', 'b', 'ab', 'c'];
const VOCABULARY: MaskVocabulary = {
  bytes: Buffer.from(TEXTS.join('')),
  starts: Uint32Array.from([0, ...TEXTS.keys()].map((_, i) => TEXTS.slice(0, i).join('').length)),
  ends: Uint32Array.of(0),
};
const [A, B, C] = [1, 2, 4];

/** Masks whose threads the test can end. `asked`: the tokens of each request for a mask. */
function masks(places?: () => KnownPlaces) {
  const threads: Worker[] = [];
  const asked: (readonly number[])[] = [];
  const start = (vocabulary: MaskVocabulary): MaskThread => {
    const thread = new Worker(new URL('../../../engine/llama/mask-worker.js', import.meta.url), {
      workerData: vocabulary,
      execArgv: [],
    });
    threads.push(thread);
    const post = thread.postMessage.bind(thread);
    thread.postMessage = (request: MaskRequest) => {
      if (request.kind === 'next') asked.push(request.read);
      post(request);
    };
    return thread;
  };
  t.teardown(() => Promise.all(threads.map((thread) => thread.terminate())));
  return { masks: new Masks(VOCABULARY, places, start), threads, asked };
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

t.test('a reply is followed through the places whose masks came, and what leaves them asks the thread', async (t) => {
  const known: (readonly [set: number, leaves: readonly number[]])[] = [];
  const forgotten: number[] = [];
  const places = (): KnownPlaces => ({
    know: (set, _may, _isNarrow, leaves) => known.push([set, [...leaves]]),
    forget: (set) => forgotten.push(set),
  });
  const { masks: made, threads, asked } = masks(places);
  const gbnf = 'root ::= [ab]* "c" [ab]* "c"';
  const [first, second] = [made.constrain(gbnf, []), made.constrain(gbnf, [])];
  await Promise.all([first.pending, second.pending]);
  const start = first.from?.at ?? -1;
  for (const token of [A, B, A]) first.accept(token);
  t.equal(first.pending, undefined, 'it stays where it is');
  t.equal(first.from?.at, start);
  t.same([hasBit(first.mask, A), hasBit(first.mask, C)], [true, true]);
  first.accept(C);
  t.throws(() => first.from, /not ready/);
  await first.pending;
  const then = first.from?.at ?? -1;
  t.not(then, start);
  t.same(known, [
    [start, [C, then]],
    [then, [C, known[1]?.[1][1]]],
  ]);
  t.same(asked, [[], [], [A, B, A, C]]);
  // The same places for another reply, which the thread is not asked about.
  for (const token of [B, C]) second.accept(token);
  t.equal(second.pending, undefined);
  t.equal(second.from?.at, then);
  // Each within one call: the thread is asked once, with all that it has not read.
  for (const token of [A, C]) second.accept(token);
  await second.pending;
  t.same(asked[3], [B, C, A, C]);
  t.same([hasBit(second.mask, 0), hasBit(second.mask, A)], [true, false], 'it may only end');

  const end = second.from?.at;
  await threads[0]?.terminate();
  first.accept(C);
  await first.pending;
  t.same(forgotten, [start, then, end], 'another thread gives other places these numbers');
});
