import t from 'tap';
import { TenantClass } from '../../../sidecar/admission/account-class.js';

t.test('predictions are corrected within bounds', async (t) => {
  const tenant = new TenantClass('standard');
  for (let i = 0; i < 100; i += 1) tenant.waitedInVain();
  t.equal(tenant.calibration, 4);
  for (let i = 0; i < 10_000; i += 1) tenant.waitedWell();
  t.equal(tenant.calibration, 0.5);
});
