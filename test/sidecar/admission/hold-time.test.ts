import t from 'tap';
import { HoldTime } from '../../../sidecar/admission/hold-time.js';
import { retryAfter } from '../../../sidecar/admission/refusals.js';

t.test('the mean moves by a tenth towards the newest lease', async (t) => {
  const hold = new HoldTime();
  t.equal(hold.meanMs, undefined, 'before anything is known');
  hold.observe(3000);
  t.equal(hold.meanMs, 3000);
  hold.observe(13_000);
  t.equal(hold.meanMs, 4000);
});

t.test('retries come back 1 to 59 s later, spread over a quarter more', async (t) => {
  t.equal(retryAfter(0, 0), 1000);
  t.equal(retryAfter(0, 1), 1250);
  t.equal(retryAfter(10_000, 0.5), 11_250);
  t.equal(retryAfter(1000.2, 0), 1001, 'whole ms, upward');
  t.equal(retryAfter(1e9, 0), 59_000);
});
