import t from 'tap';
import { HoldTime, retryAfter } from '../../../sidecar/admission/hold-time.js';

t.test('the wait is the line over the seats, times what a lease lasts', async (t) => {
  const hold = new HoldTime();
  t.equal(hold.waitMs(0, 1), 1000, 'before anything is known');
  hold.observe(3000);
  t.equal(hold.waitMs(7, 4), 6000);
  hold.observe(13_000);
  t.equal(hold.waitMs(0, 1), 4000, 'a tenth of the newest');
  t.equal(hold.waitMs(0, 0), 4000);
});

t.test('retries come back from 1 to 59 s later, spread over a quarter more', async (t) => {
  t.equal(retryAfter(0, 0), 1000);
  t.equal(retryAfter(0, 1), 1250);
  t.equal(retryAfter(10_000, 0.5), 11_250);
  t.equal(retryAfter(1000.2, 0), 1001, 'whole ms, upward');
  t.equal(retryAfter(1e9, 0), 59_000);
});
