import t from 'tap';
import { distribution } from '../../../engine/scheduler/scoring.js';

t.test('a temperature of almost nothing gives all to the likeliest label', async (t) => {
  // The product of the smallest temperature of a request and a model's own is 0.
  for (const temperature of [0, Number.MIN_VALUE]) {
    const { probabilities, labelMass } = distribution(Float64Array.of(-2, -1, -3), temperature);
    t.strictSame([...probabilities], [0, 1, 0]);
    t.ok(labelMass > 0.5 && labelMass < 0.6);
  }
});
