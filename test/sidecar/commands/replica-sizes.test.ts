import t from 'tap';
import { replicasToSize } from '../../../sidecar/commands/replica-sizes.js';
import type { ModelConfig } from '../../../sidecar/config/config.js';

const CACHE = { scope: 'account', maxAgeMs: 1000 } as const;
const MODEL = {
  file: '/m.gguf',
  kind: 'chat',
  engine: { kind: 'llama.cpp' },
  seats: 1,
  contextPerSeat: 64,
  threads: 1,
  gpu: false,
  replicas: 1,
  prefixReuse: 'auto',
  prefixCache: CACHE,
} as unknown as ModelConfig;

t.test('what is free for prefix caches is shared by the engines whose size is not set', async (t) => {
  const found = await replicasToSize([
    { ...MODEL, id: 'two', replicas: 2 },
    { ...MODEL, id: 'off', prefixReuse: 'off' },
    { ...MODEL, id: 'none', prefixCache: { ...CACHE, bytes: 0 } },
    { ...MODEL, id: 'set', prefixCache: { ...CACHE, bytes: 9 } },
  ]);
  const setups = found.flatMap((one) => (one.kind === 'replica' ? [one.toSize.setup] : []));
  t.equal(setups.length, 5);
  for (const { prefixCache } of setups) t.equal(prefixCache?.engines, 2);
  t.equal(setups[2]?.prefixReuse, 'off', 'an inspector counts no cache for it');
});
