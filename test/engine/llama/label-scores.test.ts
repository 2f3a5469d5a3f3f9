import t from 'tap';
import { EngineFault } from '../../../engine/scheduler/faults.js';
import { labelLogprobs } from '../../../engine/llama/label-scores.js';

const VOCABULARY = [0.5, -1, 3, 2, -7];

/** The labels’ logits and the highest logit, as a decoder returns them. */
function scores(labels: readonly number[]): readonly number[] {
  const highest = VOCABULARY.indexOf(Math.max(...VOCABULARY));
  const logits = new Map([...labels, highest].map((token) => [token, VOCABULARY[token] ?? NaN]));
  const total = VOCABULARY.reduce((sum, logit) => sum + Math.exp(logit - Math.max(...VOCABULARY)), 0);
  return [...labelLogprobs(Uint32Array.from(labels), logits, total)];
}

t.test('log-probabilities are over the whole vocabulary, in the order of the labels', (t) => {
  const sum = VOCABULARY.reduce((all, logit) => all + Math.exp(logit), 0);
  for (const labels of [[2], [4, 0], [3, 1, 2], [0, 1, 2, 3, 4]]) {
    const wanted = labels.map((token) => Math.log(Math.exp(VOCABULARY[token] ?? NaN) / sum));
    scores(labels).forEach((score, i) => t.ok(Math.abs(score - (wanted[i] ?? NaN)) < 1e-12, labels.join()));
  }
  const all = scores([0, 1, 2, 3, 4]).reduce((total, score) => total + Math.exp(score), 0);
  t.ok(Math.abs(all - 1) < 1e-12);
  t.end();
});

t.test('a label without a logit is a fault', (t) => {
  t.throws(() => labelLogprobs(Uint32Array.of(1), new Map([[2, 3]]), 1), EngineFault);
  t.end();
});
