import t from 'tap';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';
import { ClosedScopes } from '../../../engine/protocol/closed-scopes.js';

t.test('the oldest is dropped when there are too many, and the one of all accounts is never closed', async (t) => {
  const closed = new ClosedScopes();
  closed.close(ALL_ACCOUNTS);
  t.notOk(closed.has(ALL_ACCOUNTS));
  for (let name = 0; name < 4096; name += 1) closed.close(`${name}`);
  closed.close('0');
  closed.close('last');
  t.ok(closed.has('0'), 'closed again');
  t.notOk(closed.has('1'));
  t.equal([...closed].length, 4096);
  t.equal([...closed].at(-1), 'last');
});
