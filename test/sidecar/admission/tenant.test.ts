import t from 'tap';
import { Tenant } from '../../../sidecar/admission/tenant.js';

t.test('predictions are corrected within bounds', async (t) => {
  const tenant = new Tenant('a');
  for (let i = 0; i < 100; i += 1) tenant.waitedInVain();
  t.equal(tenant.calibration, 4);
  for (let i = 0; i < 10_000; i += 1) tenant.waitedWell();
  t.equal(tenant.calibration, 0.5);
});
