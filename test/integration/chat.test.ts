import t from 'tap';
import { Sidecar } from '../support/sidecar.js';

t.test('a whole chat completion over HTTP', async (t) => {
  const sidecar = await Sidecar.start(t);
  const response = await sidecar.chat({ messages: [{ role: 'user', content: 'Hello' }], max_tokens: 8, seed: 1 });
  t.equal(response.status, 200);
  t.match(await response.json(), { object: 'chat.completion', choices: [{ message: { role: 'assistant' } }] });
  sidecar.child.kill('SIGTERM');
  t.same(await sidecar.exited(), { code: 0, signal: null });
});
