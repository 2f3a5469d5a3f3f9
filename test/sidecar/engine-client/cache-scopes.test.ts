import t from 'tap';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';
import { CacheScopes } from '../../../sidecar/engine-client/cache-scopes.js';

t.test('an account has its own scope, which does not contain its name', async (t) => {
  const scopes = new CacheScopes('account');
  t.equal(scopes.of('acme'), scopes.of('acme'));
  t.match(scopes.of('acme'), /^[\w-]{22}$/);
  const all = new Set(Array.from({ length: 1000 }, (_, i) => scopes.of(`account-${i}`)));
  t.equal(all.size, 1000);
  t.not(new CacheScopes('account').of('acme'), scopes.of('acme'), 'another process has another secret');
});

t.test('a closed account gets another one', async (t) => {
  const scopes = new CacheScopes('account');
  const [first, other] = [scopes.of('acme'), scopes.of('globex')];
  t.equal(scopes.close('acme'), first);
  const second = scopes.of('acme');
  t.not(second, first);
  t.equal(scopes.close('acme'), second);
  t.not(scopes.of('acme'), second);
  t.equal(scopes.of('globex'), other);
});

t.test('or all accounts have one', async (t) => {
  const scopes = new CacheScopes('all');
  t.equal(scopes.of('acme'), ALL_ACCOUNTS);
  t.equal(scopes.close('acme'), ALL_ACCOUNTS);
  t.equal(scopes.of('globex'), ALL_ACCOUNTS);
});
