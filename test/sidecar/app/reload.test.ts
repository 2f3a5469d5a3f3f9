import t from 'tap';
import { reloader, type ReloadParts } from '../../../sidecar/app/reload.js';
import type { LogFields } from '../../../sidecar/telemetry/logger.js';

t.test('weights whose template has no known format of calls are logged, of the reloaded model alone', async (t) => {
  const warned: unknown[] = [];
  const calls = { native: false, chosen: false, says: 'how it calls' };
  const engine = {
    setups: [{ file: '/old', weights: { key: '1:1:1:0', version: 'old' } }],
    replicas: [{ state: 'ready' }],
    replace: () => Promise.resolve({ kind: 'replaced' }),
  };
  const reload = reloader({
    models: new Map([['one', { id: 'one', engine }]]),
    files: { of: () => Promise.resolve({ key: '1:2:1:0', version: 'new' }) },
    prompts: {
      prepare: () => Promise.resolve({ kind: 'ready', models: ['one', 'two'].map((id) => ({ id, calls })) }),
      adopt: () => undefined,
      discard: () => undefined,
      settle: () => undefined,
    },
    promptModels: [],
    log: { warn: (event: string, fields?: LogFields) => warned.push([event, fields]), info: () => undefined },
  } as unknown as ReloadParts);
  t.match(await reload('one', '/new'), { kind: 'reloaded', version: 'new', replicas: 1 });
  t.same(warned, [['tools without a native format', { model: 'one', reason: 'how it calls' }]]);
});
