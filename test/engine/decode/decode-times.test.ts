import t from 'tap';
import { DecodeTimes } from '../../../engine/decode/decode-times.js';
import type { Part } from '../../../engine/decode/decoder.js';

const chunk = (tokens: number): Part => ({ kind: 'prefill', sequence: 0, tokens: new Uint32Array(tokens) });
const score = (tokens: number): Part => ({
  kind: 'score',
  sequence: 1,
  tokens: new Uint32Array(tokens),
  labels: Uint32Array.of(1),
});
const sample = (sequence: number, tokens = 1): Part => ({
  kind: 'sample',
  sequence,
  tokens: new Uint32Array(tokens),
  sampler: { hold: () => true, release: () => undefined, dispose: () => undefined },
});

t.test('what was never seen may take for ever', (t) => {
  const times = new DecodeTimes();
  t.equal(times.nextTokensMs, Infinity);
  t.equal(times.expected([sample(1)]), Infinity);
  t.equal(times.expected([chunk(2)]), Infinity);
  t.end();
});

t.test('next tokens take what they took alone, or in the last run', (t) => {
  const times = new DecodeTimes();
  times.took([sample(1), sample(2)], 8);
  t.equal(times.expected([sample(3)]), 8);
  times.ran(3);
  t.equal(times.nextTokensMs, 3);
  t.equal(times.expected([sample(1), sample(2)]), 3);
  t.end();
});

t.test('prompts take so much a token, whatever becomes of their ends', (t) => {
  const times = new DecodeTimes();
  times.took([chunk(6), sample(1, 3), score(1)], 20);
  t.equal(times.expected([chunk(5)]), 10);
  t.equal(times.expected([score(1), sample(1, 2)]), 6);
  t.end();
});

t.test('a step of both teaches neither, and takes both', (t) => {
  const times = new DecodeTimes();
  times.took([chunk(10)], 20);
  times.took([sample(1)], 5);
  times.took([sample(1), chunk(10)], 1000);
  t.equal(times.expected([sample(1), chunk(10)]), 25);
  t.end();
});
