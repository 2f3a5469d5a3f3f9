import t from 'tap';
import { starting } from '../../../sidecar/api/refusals.js';

t.test('a model that was given up is not called one that still loads', async (t) => {
  t.match(starting({ state: 'cold', readyInMs: 1500 }), { code: 'cold', message: /still loading/, retryAfterMs: 1500 });
  t.match(starting({ state: 'unloaded', readyInMs: 1500 }), { message: /still loading/, retryAfterMs: 1500 });
  const lost = starting({ state: 'lost', readyInMs: 1500 });
  t.match(lost, { code: 'cold', message: /cannot be served.*the operator has to act/, retryAfterMs: 60_000 });
  t.notMatch(lost.message, /loading/);
});
