import t from 'tap';
import { AccountClass } from '../../../sidecar/admission/account-class.js';

t.test('predictions are corrected within bounds', async (t) => {
  const account = new AccountClass('standard');
  for (let i = 0; i < 100; i += 1) account.waitedTooLong();
  t.equal(account.calibration, 4);
  for (let i = 0; i < 10_000; i += 1) account.waitedAndSeated();
  t.equal(account.calibration, 0.5);
});
