import { readFileSync } from 'node:fs';
import t from 'tap';
import { poolThreads } from '../../../sidecar/engine-client/child.js';
import { EngineHarness } from '../../support/engine-harness.js';

void t.test('the pool has a thread for each core, at least libuv’s default and at most a bound', async (t) => {
  t.equal(poolThreads(1), 4);
  t.equal(poolThreads(16), 16);
  t.equal(poolThreads(256), 64);
});

void t.test('an engine gets the settings of its libraries, and none of the sidecar’s own variables', async (t) => {
  const secrets = { RA_TEST_ONLY: 'x', DATABASE_PASSWORD: 'x', AWS_SECRET_ACCESS_KEY: 'x', LLAMA_API_KEY: 'x' };
  const set = { ...secrets, GGML_TEST_ONLY: 'x' };
  Object.assign(process.env, set);
  const harness = new EngineHarness();
  t.teardown(async () => {
    for (const name of Object.keys(set)) Reflect.deleteProperty(process.env, name);
    await harness.engine.close();
  });
  harness.engine.start();
  await harness.ready();
  const entries = readFileSync(`/proc/${harness.engine.pid}/environ`, 'utf8').split('\0');
  const names = entries.map((entry) => entry.slice(0, entry.indexOf('=')));
  t.strictSame(
    Object.keys(set).filter((name) => names.includes(name)),
    ['GGML_TEST_ONLY'],
  );
});
