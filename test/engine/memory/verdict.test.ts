import t from 'tap';
import { misfit, RESERVE, tooHeavy } from '../../../engine/memory/verdict.js';

const GIB = 2 ** 30;
const need = { weights: 8 * GIB, perSeat: 0.4 * GIB, compute: 0.3 * GIB };
const plan = { seats: 16, contextPerSeat: 8192 };

t.test('what fits to the byte fits', (t) => {
  const total = need.weights + 16 * need.perSeat + need.compute;
  t.equal(misfit(need, plan, total + RESERVE, 'memory'), undefined);
  t.type(misfit(need, plan, total + RESERVE - 1, 'memory'), 'string');
  t.equal(tooHeavy(GIB, GIB + RESERVE, 'memory'), undefined);
  t.end();
});

t.test('the line has the numbers and what would fit', (t) => {
  t.equal(
    misfit(need, plan, 10 * GIB + RESERVE, 'memory'),
    'it needs 14.7 GiB of memory (weights 8, KV 6.4 for 16 seats of 8,192 tokens, compute 0.3) and 10 GiB are free. ' +
      'Fewer seats or a smaller context fit: at most 4 seats',
  );
  t.match(misfit(need, plan, 8.8 * GIB + RESERVE, 'memory'), /at most 1 seat$/);
  t.match(misfit(need, plan, 8.5 * GIB, 'GPU memory'), /GiB of GPU memory .* Not even one seat fits: use a smaller/);
  t.match(misfit(need, { ...plan, seats: 1 }, 0, 'memory'), /for 1 seat of .* and 0 GiB are free\. Not even one/);
  t.equal(
    tooHeavy(8 * GIB, 2 * GIB + RESERVE, 'memory'),
    'its weights alone need 8 GiB of memory and 2 GiB are free: use a smaller model',
  );
  t.end();
});
