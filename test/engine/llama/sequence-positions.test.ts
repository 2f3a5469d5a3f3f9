import t from 'tap';
import { SequencePositions } from '../../../engine/llama/batch-sequences.js';
import type { StepPart } from '../../../engine/scheduler/decoder.js';

const text = (length: number): StepPart => ({ kind: 'prefill', sequence: 0, tokens: new Uint32Array(length) });

/** A grid of 4 columns and 3 rows, which advances positions by 4: `length` embeddings of it from `index` on. */
const grid = (index: number, length: number): StepPart => ({
  kind: 'embeddings',
  sequence: 0,
  tokens: new Uint32Array(length),
  values: new Float32Array(0),
  image: { index, of: 12, positions: 4, columns: 4, whole: false },
});

t.test('tokens have one position each', async (t) => {
  const held = new SequencePositions();
  t.equal(held.last, -1);
  t.equal(held.extend(text(3)), 0);
  t.equal(held.extend(text(2)), 3);
  t.equal(held.length, 5);
  t.equal(held.last, 4);
  held.become(2);
  t.equal(held.extend(text(1)), 2);
});

t.test('after an image with two dimensions positions continue behind its longer side', async (t) => {
  const held = new SequencePositions();
  held.extend(text(3));
  t.equal(held.extend(grid(0, 12)), 3);
  t.equal(held.last, 3, 'its embeddings have one temporal position');
  t.equal(held.extend(text(2)), 7);
  t.equal(held.last, 8);
  t.equal(held.extend(grid(0, 12)), 9);
  t.equal(held.extend(text(1)), 13);
  t.equal(held.length, 30);
  for (const [token, position] of [
    [0, 0],
    [3, 3],
    [15, 7],
    [16, 8],
    [17, 9],
    [29, 13],
    [30, 14],
  ] as const) {
    t.equal(held.at(token), position, `token ${token}`);
  }
});

t.test('parts of an image begin at its position', async (t) => {
  const held = new SequencePositions();
  held.extend(text(3));
  t.equal(held.extend(grid(0, 8)), 3);
  t.equal(held.last, 3);
  t.equal(held.extend(grid(8, 4)), 3);
  t.equal(held.extend(text(1)), 7);
});

t.test('truncated before an image a sequence does not have it, and a copy has what its source has', async (t) => {
  const held = new SequencePositions();
  held.extend(text(3));
  held.extend(grid(0, 12));
  held.extend(text(5));
  const copy = new SequencePositions();
  copy.copy(held);
  held.become(3);
  t.equal(held.extend(text(1)), 3);
  t.equal(held.last, 3);
  t.equal(copy.last, 11);
  copy.become(15);
  t.equal(copy.extend(text(1)), 7, 'truncated after it');
});

t.test('an image with one dimension is like tokens', async (t) => {
  const held = new SequencePositions();
  const flat: StepPart = {
    ...grid(0, 12),
    image: { index: 0, of: 12, positions: 12, columns: 0, whole: true },
  } as StepPart;
  held.extend(text(1));
  t.equal(held.extend(flat), 1);
  t.equal(held.last, 12);
  t.equal(held.extend(text(1)), 13);
});
