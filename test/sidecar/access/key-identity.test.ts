import t from 'tap';
import type { KeyFile, StoredKey } from '../../../sidecar/access/key-file.js';
import { hashKey } from '../../../sidecar/access/key-index.js';
import { KeyFileIdentity } from '../../../sidecar/access/key-identity.js';
import { inCohort, mayCall, mayUse, type Caller, type Denied } from '../../../sidecar/access/identity.js';
import { makeKey, sends } from '../../support/keys.js';

const NOW = Date.parse('2026-06-01T00:00:00Z');

function ask(
  changes: Partial<StoredKey> = {},
  more: Partial<KeyFile> = {},
  environment = 'development',
): Promise<Caller | Denied> {
  const { key, stored } = makeKey(changes);
  const identity = new KeyFileIdentity({ version: 1, keys: [stored], ...more }, environment, () => NOW);
  return identity.resolve(sends(`Bearer ${key}`));
}

async function code(...args: Parameters<typeof ask>): Promise<string> {
  const answer = await ask(...args);
  return answer.kind === 'denied' ? answer.code : 'caller';
}

t.test('a valid key has its account, models and weight', async (t) => {
  const limits = { inFlight: 2, perMinute: 60 };
  t.strictSame(await ask({ id: 'k1', limits }), {
    kind: 'caller',
    account: 'acme',
    keyId: 'k1',
    environment: 'development',
    models: 'all',
    limits: { decisions: limits },
    weight: 4,
  });
  const own = { chat: { inFlight: 0 }, models: { perMinute: 5 } };
  t.strictSame(await ask({ id: 'k1', limits: own }), { ...(await ask({ id: 'k1' })), limits: own });
  t.match(await ask({ weight: 16 }), { weight: 16 });
  t.match(await ask({ class: 'interactive' }), { weight: 16 });
  t.match(await ask({ class: 'standard' }), { weight: 4 });
  t.match(await ask({ class: 'batch' }), { weight: 1 });
});

t.test('each of several keys has its own', async (t) => {
  const keys = [makeKey({ id: 'a' }), makeKey({ id: 'b' }), makeKey({ id: 'c' })];
  const identity = new KeyFileIdentity({ version: 1, keys: keys.map(({ stored }) => stored) }, 'development');
  for (const { key, stored } of keys) {
    t.match(await identity.resolve(sends(`Bearer ${key}`)), { keyId: stored.id });
  }
});

t.test('whatever is not a known key after Bearer is invalid', async (t) => {
  const { key, stored } = makeKey();
  const identity = new KeyFileIdentity({ version: 1, keys: [stored] }, 'development');
  for (const authorization of [
    undefined,
    '',
    'Bearer',
    'Bearer ',
    key,
    `Basic ${key}`,
    `Bearer ${key.slice(0, -1)}`,
    `Bearer ${key}x`,
    `Bearer ${key} ${key}`,
    `Bearer ${key}\n`,
    `Bearer ${stored.hash}`,
    `Bearer ${'x'.repeat(100_000)}`,
  ]) {
    t.strictSame(await identity.resolve(sends(authorization)), { kind: 'denied', code: 'invalid_api_key' });
  }
  t.match(await identity.resolve(sends(`bearer   ${key}`)), { kind: 'caller' }, 'the scheme is case-insensitive');
});

t.test('every credential costs one hash and one lookup, whatever the result', async (t) => {
  const good = makeKey();
  const revoked = makeKey({ revoked: '2026-05-01T00:00:00Z' });
  const expired = makeKey({ expires: '2026-05-01T00:00:00Z' });
  const frozen = makeKey({ account: 'icy' });
  const keys = [good, revoked, expired, frozen].map(({ stored }) => stored);
  const file = { version: 1, accounts: { icy: { frozen: true } }, keys } as const;
  const identity = new KeyFileIdentity(file, 'development', () => NOW);
  const credentials = [
    ...[good, revoked, expired, frozen].map(({ key }) => `Bearer ${key}`),
    // A key that differs only at its end, an unknown one, and none.
    `Bearer ${good.key.slice(0, -1)}_`,
    `Bearer ${makeKey().key}`,
    `Bearer ${'x'.repeat(100_000)}`,
    `Basic ${good.key}`,
    '',
    undefined,
  ];
  for (const [i, authorization] of credentials.entries()) {
    await identity.resolve(sends(authorization));
    t.equal(identity.lookups, i + 1, String(authorization).slice(0, 20));
  }
});

t.test('a credential without a key is refused, even if the hash of the empty string is in the file', async (t) => {
  const { stored } = makeKey({ hash: hashKey('') });
  const identity = new KeyFileIdentity({ version: 1, keys: [stored] }, 'development', () => NOW);
  for (const authorization of [undefined, '', 'Bearer', 'Bearer ']) {
    t.match(await identity.resolve(sends(authorization)), { code: 'invalid_api_key' });
  }
});

t.test('other reasons to refuse a key', async (t) => {
  t.equal(await code({ revoked: '2026-05-01T00:00:00Z' }), 'revoked_api_key');
  t.equal(await code({ expires: '2026-06-01T00:00:00Z' }), 'expired_api_key', 'from that millisecond on');
  t.equal(await code({ expires: '2026-06-01T00:00:00.001Z' }), 'caller');
  t.equal(await code({ revoked: '2026-05-01T00:00:00Z', expires: '2026-05-01T00:00:00Z' }), 'revoked_api_key');
  t.equal(await code({}, { accounts: { acme: { frozen: true } } }), 'account_frozen');
  t.equal(await code({}, { accounts: { acme: {}, other: { frozen: true } } }), 'caller');
  const { stored, key } = makeKey();
  const { id, hash, created, entitlements } = stored;
  const identity = new KeyFileIdentity(
    { version: 1, keys: [{ id, hash, created, entitlements }] },
    'development',
    () => NOW,
  );
  t.match(await identity.resolve(sends(`Bearer ${key}`)), { code: 'unattributed_key' });
});

t.test('entitlements are those of the environment only', async (t) => {
  const entitlements = {
    development: { models: 'all' as const },
    production: { models: ['a', 'b'], routes: ['chat' as const] },
  };
  const caller = await ask({ entitlements }, {}, 'production');
  if (caller.kind === 'denied') throw new Error(caller.code);
  t.ok(mayCall(caller.models, 'a'));
  t.notOk(mayCall(caller.models, 'c'));
  t.ok(mayUse(caller, 'chat'));
  t.notOk(mayUse(caller, 'decisions'));

  const elsewhere = await ask({ entitlements }, {}, 'staging');
  if (elsewhere.kind === 'denied') throw new Error(elsewhere.code);
  t.notOk(mayCall(elsewhere.models, 'a'));
  t.match(await ask({}, {}, 'constructor'), { models: new Set() });

  const pilots = { development: { models: 'all' as const, cohort: 'pilots', tokensPerDay: 5 } };
  t.match(await ask({ entitlements: pilots }), { cohort: 'pilots', tokensPerDay: 5 });
});

t.test('a model of a cohort is open to its keys, and to callers of a gateway', async (t) => {
  const caller: Caller = {
    kind: 'caller',
    account: 'acme',
    keyId: 'k',
    environment: 'development',
    models: 'all',
    weight: 4,
  };
  t.ok(inCohort(caller, undefined));
  t.notOk(inCohort(caller, 'pilots'));
  t.notOk(inCohort({ ...caller, cohort: 'sailors' }, 'pilots'));
  t.ok(inCohort({ ...caller, cohort: 'pilots' }, 'pilots'));
  t.ok(inCohort({ ...caller, cohort: 'pilots' }, undefined));
  t.ok(inCohort({ ...caller, vouched: true }, 'pilots'));
});
