import t from 'tap';
import { LoadEstimate } from '../../../sidecar/lib/load-estimate.js';

t.test('an engine is ready after its load, and not before its weights are hashed', async (t) => {
  const estimate = new LoadEstimate(60_000);
  t.equal(estimate.readyInMs(100, 3000), 5000, 'before the fork all is still to come');
  t.equal(estimate.readyInMs(2000, 6000), 6000);
  estimate.forked(3000);
  t.equal(estimate.readyInMs(4000), 4000);
  estimate.ready(5000);
  t.equal(estimate.loadMs, 2000, 'the load alone');
  estimate.forksAt(9000);
  t.equal(estimate.readyInMs(8000), 3000, 'after a wait');
  t.equal(estimate.readyInMs(9500), 2000, 'longer than it should have taken');
  estimate.forked(9600);
  t.equal(estimate.readyInMs(11_500), 500, 'never less');
  t.equal(estimate.readyInMs(11_600), 2000, 'overdue: as long again');
  t.equal(estimate.readyInMs(20_000), 10_400);
  t.equal(estimate.readyInMs(200_000), 60_000, 'never more');
});
