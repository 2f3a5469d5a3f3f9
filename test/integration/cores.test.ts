/** An engine with configured cores computes there, and its main thread may run anywhere. */
import t from 'tap';
import { embeddedTestModel } from '../support/models.js';
import { threadCores } from '../support/processes.js';
import { CHAT, Sidecar } from '../support/sidecar.js';

t.test('all threads of an engine except its main one, also of its successor', async (t) => {
  const [all = ''] = threadCores(process.pid);
  const last = all.split(/[-,]/).at(-1) ?? '';
  const file = await embeddedTestModel();
  const model = { id: CHAT, kind: 'chat', file, seats: 1, contextPerSeat: 512, gpu: false, cores: last };
  const sidecar = await Sidecar.start(t, { config: { models: [model] } });
  for (const life of [1, 2]) {
    await sidecar.logged('engine ready', life);
    const response = await sidecar.chat({ messages: [{ role: 'user', content: 'Hello' }], max_tokens: 8 });
    t.equal(response.status, 200);
    const [main, ...others] = threadCores(sidecar.enginePid(CHAT));
    t.equal(main, all);
    t.ok(others.length > 4, 'those of the pool among them');
    t.strictSame(new Set(others), new Set([last]));
    process.kill(sidecar.enginePid(CHAT), 'SIGKILL');
  }
  t.strictSame(new Set(threadCores(sidecar.pid)), new Set([all]));
});
