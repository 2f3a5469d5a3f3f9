import t from 'tap';
import { readLoad } from '../../../engine/remote/load-watch.js';

const NAMES = { prefix: 'vllm', running: 'running', waiting: 'waiting', computed: ['tokens'], kvUse: 'kv_use' };

t.test('ranks of one server: requests are added, and the fullest memory counts', async (t) => {
  const text = `# TYPE vllm:running gauge
vllm:running{engine="0"} 2
vllm:running{engine="1"} 3
vllm:running_max{engine="0"} 50
vllm:waiting{engine="0"} 0
vllm:waiting{engine="1"} 1
vllm:tokens{engine="0"} 10
vllm:tokens{engine="1"} 20 1700000000
vllm:kv_use{engine="0"} 0.5
vllm:kv_use{engine="1"} 0.6
`;
  const reading = await readLoad({ ask: () => Promise.resolve({ kind: 'text', text }) }, NAMES);
  t.strictSame(reading, { running: 5, computed: 30, waiting: 1, kvUse: 0.6 });
});

t.test('a server that does not report how full its KV memory is', async (t) => {
  const text = 'vllm:running 1\nvllm:kv_use NaN\n';
  const reading = await readLoad({ ask: () => Promise.resolve({ kind: 'text', text }) }, NAMES);
  t.strictSame(reading, { running: 1, computed: 0 });
});
