import t from 'tap';
import fc from 'fast-check';
import { GatewayIdentity } from '../../../sidecar/access/gateway-identity.js';
import type { Caller, Denied, Identity } from '../../../sidecar/access/identity.js';
import { rounds } from '../../support/long-form.js';
import { anyText } from '../../support/texts.js';

const SECRET = 's'.repeat(32);
const SOMEONE: Denied = { kind: 'denied', code: 'revoked_api_key' };
/** Its answers differ from those for a gateway’s callers. */
const others: Identity = { resolve: () => Promise.resolve(SOMEONE) };

const GOOD = {
  authorization: `Bearer ${SECRET}`,
  'x-ra-account': 'acme',
  'x-ra-key-id': 'key_1',
  'x-ra-environment': 'production',
};

function resolve(headers: Readonly<Record<string, string | undefined>>, behind?: Identity): Promise<Caller | Denied> {
  const identity = new GatewayIdentity({
    secrets: { has: (guess) => guess === SECRET },
    environment: 'production',
    class: 'interactive',
    ...(behind && { others: behind }),
  });
  return identity.resolve({ address: '', header: (name) => headers[name] });
}

async function code(headers: Readonly<Record<string, string | undefined>>): Promise<string> {
  const found = await resolve({ ...GOOD, ...headers }, others);
  return found.kind === 'denied' ? found.code : 'served';
}

t.test('an authenticated gateway names its caller', async (t) => {
  const caller: Caller = {
    kind: 'caller',
    account: 'acme',
    keyId: 'key_1',
    environment: 'production',
    models: 'all',
    weight: 16,
    vouched: true,
  };
  t.strictSame(await resolve(GOOD), caller);
  t.strictSame(await resolve({ ...GOOD, authorization: `bearer   ${SECRET}` }), caller);
  t.strictSame(await resolve({ ...GOOD, 'x-ra-models': 'a,  b/c:1\t,d' }), {
    ...caller,
    models: new Set(['a', 'b/c:1', 'd']),
  });
});

t.test('other requests are resolved as if there were no gateway', async (t) => {
  for (const authorization of [undefined, '', SECRET, `Bearer ${SECRET}x`, `Basic ${SECRET}`, `Bearer ${SECRET} x`]) {
    t.strictSame(await resolve({ ...GOOD, authorization }, others), SOMEONE, String(authorization));
    t.strictSame(await resolve({ ...GOOD, authorization }), { kind: 'denied', code: 'invalid_api_key' });
  }
});

t.test('their identity source can continue the request’s trace', async (t) => {
  const seen: unknown[] = [];
  const behind: Identity = {
    resolve: (_, trace) => {
      seen.push(trace?.());
      return Promise.resolve(SOMEONE);
    },
  };
  const secrets = { has: () => false };
  const identity = new GatewayIdentity({ secrets, environment: 'e', class: 'batch', others: behind });
  await identity.resolve({ address: '', header: () => undefined }, () => ({ traceparent: 't' }));
  t.strictSame(seen, [{ traceparent: 't' }]);
});

t.test('without an account or key id: refused', async (t) => {
  const bad = [
    undefined,
    '',
    ' ',
    'a b',
    'a,b',
    '-a',
    'a\u0000',
    'a\n',
    'аcme', // a Cyrillic а
    'acme\u0301',
    'ａcme',
    '\ufffd',
    'a'.repeat(257),
  ];
  for (const name of bad) {
    t.equal(await code({ 'x-ra-account': name }), 'unattributed_key', JSON.stringify(name));
    t.equal(await code({ 'x-ra-key-id': name }), 'unattributed_key', JSON.stringify(name));
  }
  for (const name of ['a', 'auth0|12', 'me@acme.example', 'org/team:1', 'a'.repeat(256)])
    t.equal(await code({ 'x-ra-account': name, 'x-ra-key-id': name }), 'served', name);
});

t.test('another environment, or malformed models: no entitlement', async (t) => {
  for (const environment of [undefined, '', 'staging', 'Production', 'production ', 'production,production'])
    t.equal(await code({ 'x-ra-environment': environment }), 'model_not_entitled', String(environment));
  const many = Array.from({ length: 257 }, (_, i) => `m${i}`).join(',');
  for (const models of ['', ' ', ',', 'a,', ',a', 'a b', '*', 'all,*', 'é', 'a\u00a0', 'a'.repeat(129), many])
    t.equal(await code({ 'x-ra-models': models }), 'model_not_entitled', models);
  t.equal(await code({ 'x-ra-models': many.slice(0, many.lastIndexOf(',')) }), 'served', '256 ids');
});

t.test('a refusal has what it names of the caller, for the log', async (t) => {
  const known = async (headers: Readonly<Record<string, string | undefined>>): Promise<Denied['known']> => {
    const found = await resolve({ ...GOOD, ...headers }, others);
    return found.kind === 'denied' ? found.known : undefined;
  };
  const named = { account: 'acme', keyId: 'key_1' };
  t.match(await known({ 'x-ra-environment': 'staging' }), named);
  t.match(await known({ 'x-ra-models': '' }), named);
  t.match(await known({ 'x-ra-account': 'a b' }), { account: undefined, keyId: 'key_1' });
  t.match(await known({ 'x-ra-key-id': undefined }), { account: 'acme', keyId: undefined });
});

t.test('whatever the headers contain, they entitle to what they name literally or to nothing', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(anyText({ maxLength: 12 }), { maxLength: 6 }), async (parts) => {
      const found = await resolve({ ...GOOD, 'x-ra-models': parts.join(',') });
      if (found.kind === 'denied') return found.code === 'model_not_entitled';
      return found.models !== 'all' && [...found.models].every((id) => parts.some((part) => part.trim() === id));
    }),
    { numRuns: rounds({ short: 80, long: 2000 }) },
  );
});
