/** The thread of masks, with a vocabulary of a few tokens. */
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { hasBit, type MadeMask } from '../../../engine/grammar/mask.js';
import type { AddonPlaces } from '../../../engine/llama/addon.js';
import { FollowedMasks } from '../../../engine/llama/followed-masks.js';
import {
  Masks,
  type MaskConstraint,
  type MaskRequest,
  type MaskThread,
  type MaskVocabulary,
} from '../../../engine/llama/masks.js';

const TEXTS = ['', 'a', 'b', 'ab', 'c'];
const VOCABULARY: MaskVocabulary = {
  bytes: Buffer.from(TEXTS.join('')),
  starts: Uint32Array.from([0, ...TEXTS.keys()].map((_, i) => TEXTS.slice(0, i).join('').length)),
  ends: Uint32Array.of(0),
};
const [A, B, C] = [1, 2, 4];

/** Masks whose threads the test can end. `asked`: the tokens of each request for a mask. */
function masks(followed = new FollowedMasks()) {
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
  return { masks: new Masks(VOCABULARY, followed, start), threads, asked };
}

t.test('a thread that ends fails its replies, and later ones get another thread', async (t) => {
  const { masks: made, threads } = masks();
  const [first, second] = [made.constrain('root ::= "a" "b" "c"', []), made.constrain('root ::= "ab"', [])];
  await Promise.all([first.pending, second.pending]);
  t.same([hasBit(first.made.mask, A), hasBit(first.made.mask, B)], [true, false]);
  await threads[0]?.terminate();

  first.accept(A);
  await first.pending;
  t.throws(() => first.made, /grammar/, 'with a fault, at its next request');
  const third = made.constrain('root ::= "c"', []);
  await third.pending;
  t.same([hasBit(third.made.mask, C), hasBit(third.made.mask, A)], [true, false]);
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
  t.throws(() => expensive.made, /thread for grammars failed/);
  t.ok(hasBit(behind.made.mask, C));
  t.equal(threads.length, 2);
});

t.test('tokens that come before the thread is asked are read together', async (t) => {
  const { masks: made } = masks();
  const [before, reply] = [made.constrain('root ::= "c"', []), made.constrain('root ::= "a" "b" "c"', [])];
  reply.accept(A);
  reply.accept(B);
  await Promise.all([before.pending, reply.pending]);
  t.same([hasBit(reply.made.mask, C), hasBit(reply.made.mask, A)], [true, false]);
  // Asked again before the first answer, which does not count.
  const other = made.constrain('root ::= "a" "b" "c"', []);
  other.accept(A);
  await other.pending;
  t.same([hasBit(other.made.mask, B), hasBit(other.made.mask, A)], [true, false]);
});

t.test('a reply is followed through the places whose masks came, and what leaves them asks the thread', async (t) => {
  const known: (readonly [at: number, leaves: readonly number[]])[] = [];
  const followed = new FollowedMasks((): AddonPlaces => {
    return { know: (at, _may, _isNarrow, leaves) => known.push([at, [...leaves]]) };
  });
  const from = ({ made }: MaskConstraint): number => followed.from(made)?.at ?? -1;
  const { masks: made, asked } = masks(followed);
  const gbnf = 'root ::= [ab]* "c" [ab]* "c"';
  const [first, second] = [made.constrain(gbnf, []), made.constrain(gbnf, [])];
  await Promise.all([first.pending, second.pending]);
  const start = from(first);
  for (const token of [A, B, A]) first.accept(token);
  t.equal(first.pending, undefined, 'it stays where it is');
  t.equal(from(first), start);
  t.same([hasBit(first.made.mask, A), hasBit(first.made.mask, C)], [true, true]);
  first.accept(C);
  t.throws(() => first.made, /not ready/);
  await first.pending;
  const then = from(first);
  t.not(then, start);
  t.same(known, [
    [start, [C, then]],
    [then, [C, known[1]?.[1][1]]],
  ]);
  t.same(asked, [[], [], [A, B, A, C]]);
  // The same places for another reply, which the thread is not asked about.
  for (const token of [B, C]) second.accept(token);
  t.equal(second.pending, undefined);
  t.equal(from(second), then);
  // Each within one call: the thread is asked once, with all that it has not read.
  for (const token of [A, C]) second.accept(token);
  await second.pending;
  t.same(asked[3], [B, C, A, C]);
  t.same([hasBit(second.made.mask, 0), hasBit(second.made.mask, A)], [true, false], 'it may only end');
});

t.test('the masks that replies are followed through have a bound, and those of unused grammars make room', (t) => {
  const known: number[] = [];
  const followed = new FollowedMasks(() => ({ know: (at) => known.push(at) }));
  // Sixteen of them are as many as there is room for.
  const made = (of: string, at: number): MadeMask => {
    return { mask: new Uint32Array(87_000), isNarrow: false, place: { of, at, leaves: Int32Array.of(A, at + 1) } };
  };
  const isKnown = (of: string, at: number): boolean => followed.after(made(of, at - 1), A) !== undefined;
  for (let at = 0; at < 20; at++) followed.from(made('first', at));
  t.same([known.length, isKnown('first', 15), isKnown('first', 16)], [16, true, false]);
  t.equal(followed.from(made('second', 1)), undefined, 'while others are used');
  for (let call = 0; call < 1024; call++) followed.from(made('third', 1));
  t.same(followed.from(made('second', 1))?.at, 1);
  t.same([isKnown('first', 15), isKnown('second', 1)], [false, true]);
  t.end();
});

t.test('a reply whose tokens the thread could not read stays at its fault', async (t) => {
  const { masks: made, asked } = masks();
  const reply = made.constrain('root ::= "a" "b" "c"', []);
  await reply.pending;
  // The first is forbidden; the others come while the thread reads it.
  reply.accept(C);
  await new Promise(setImmediate);
  reply.accept(A);
  await reply.pending;
  t.throws(() => reply.made, /does not allow/);
  reply.accept(B);
  t.equal(reply.pending, undefined);
  t.throws(() => reply.made, /does not allow/);
  t.equal(asked.length, 2);
});
