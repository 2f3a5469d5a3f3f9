import t from 'tap';
import { poolThreads } from '../../../sidecar/engine-client/pool-threads.js';

void t.test('the pool has a thread for each core, at least libuv’s default and at most a bound', async (t) => {
  t.equal(poolThreads(1), 4);
  t.equal(poolThreads(16), 16);
  t.equal(poolThreads(256), 64);
});
