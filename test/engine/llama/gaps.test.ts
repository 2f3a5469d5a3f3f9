import t from 'tap';
import { gapsOf, described } from '../../../engine/llama/described-parts.js';
import type { StepPart } from '../../../engine/scheduler/decoder.js';

const CONTEXT = 100;
const parts = (...ids: readonly number[]): StepPart[] =>
  ids.map((sequence) => ({ kind: 'prefill', sequence, tokens: Uint32Array.of(7) }));
const held = (
  lengths: Readonly<Record<number, number | undefined>> = {},
): { next(id: number): number | undefined } => ({
  next: (id) => (id in lengths ? lengths[id] : 0),
});
const ids = (of: readonly StepPart[], lengths?: Readonly<Record<number, number | undefined>>): number[] =>
  gapsOf(of, held(lengths), CONTEXT).map(({ sequence }) => sequence);

t.test('sequences between those of a step are gaps, at the end of what they hold', (t) => {
  t.same(gapsOf(parts(1, 2, 4, 7), held({ 3: 12 }), CONTEXT), [
    { sequence: 3, position: 12 },
    { sequence: 5, position: 0 },
    { sequence: 6, position: 0 },
  ]);
  t.same(ids(parts(3)), []);
  t.same(ids(parts(0, 1, 2)), []);
  t.end();
});

t.test('a gap that is long, or of which one sequence can take no token, is left', (t) => {
  t.same(ids(parts(0, 17)).length, 16);
  t.same(ids(parts(0, 18, 20)), [19]);
  t.same(gapsOf(parts(0, 3, 5), held({ 1: 60_000, 2: 20_000 }), 100_000).length, 1, 'its attention would read much');
  t.same(gapsOf(parts(0, 3, 5), held({ 1: 20_000, 2: 20_000 }), 100_000).length, 3);
  t.same(ids(parts(0, 3, 5), { 2: undefined }), [4], 'llama.cpp still copies it');
  t.same(ids(parts(0, 3, 5), { 1: CONTEXT }), [4], 'it is full');
  t.end();
});

t.test('their tokens are described in the order of ids, and the places of logits count them', (t) => {
  const of: StepPart[] = [
    { kind: 'score', sequence: 1, tokens: Uint32Array.of(5, 6), labels: Uint32Array.of(1) },
    { kind: 'prefill', sequence: 4, tokens: Uint32Array.of(8) },
    { kind: 'score', sequence: 5, tokens: Uint32Array.of(9), labels: Uint32Array.of(1) },
  ];
  const { numbers, tokens, logitIndexes, pickers, labels } = described(of, [], gapsOf(of, held({ 3: 12 }), CONTEXT), {
    extend: () => 50,
  });
  t.same([...numbers], [1, 50, 2, 1, 2, 0, 1, 2, 3, 12, 1, 2, 4, 50, 1, 0, 5, 50, 1, 1]);
  t.same([...tokens], [5, 6, 0, 0, 8, 9]);
  t.same(logitIndexes, [1, -1, 5]);
  t.same(pickers, []);
  t.same(
    labels.map((each) => each?.length),
    [1, undefined, 1],
  );
  t.end();
});
