import t from 'tap';
import { MOST_KEYS, TokenQuotas } from '../../../sidecar/access/quotas.js';

const KEY = { account: 'acme', keyId: 'k', tokensPerDay: 100 };

t.test('a clock that jumps ahead and back blocks no key for longer than a day', (t) => {
  const today = Date.parse('2026-06-01T23:00:00Z');
  let now = Date.parse('2036-06-01T00:00:00Z');
  const quotas = new TokenQuotas(() => new Date(now));
  quotas.charge(KEY, 100);
  t.equal(quotas.waitMs(KEY), 86_400_000);
  now = today;
  t.equal(quotas.waitMs(KEY), 3_600_000);
  now += 3_600_000;
  t.equal(quotas.waitMs(KEY), 0);
  t.end();
});

t.test('a day’s tokens, until midnight', async (t) => {
  let now = Date.parse('2026-06-01T23:00:00Z');
  const quotas = new TokenQuotas(() => new Date(now));
  t.equal(quotas.waitMs(KEY), 0);
  quotas.charge(KEY, 60);
  t.equal(quotas.waitMs(KEY), 0);
  quotas.charge(KEY, 40);
  t.equal(quotas.waitMs(KEY), 3_600_000, 'used up to the last token');
  t.equal(quotas.waitMs({ ...KEY, keyId: 'other' }), 0);
  t.equal(quotas.waitMs({ ...KEY, account: 'other' }), 0);
  t.equal(quotas.waitMs({ account: 'acme', keyId: 'k' }), 0, 'none to keep');
  t.equal(quotas.waitMs({ ...KEY, tokensPerDay: 101 }), 0, 'raised');
  now += 3_599_999;
  t.equal(quotas.waitMs(KEY), 1);
  now += 1;
  t.equal(quotas.waitMs(KEY), 0, 'a new day');
  quotas.charge(KEY, 1000);
  t.equal(quotas.waitMs(KEY), 86_400_000);
  now -= 10_000;
  t.equal(quotas.waitMs(KEY), 10_000, 'a clock that is set back does not return tokens');
  now += 10_000;
  t.equal(quotas.waitMs(KEY), 86_400_000, 'nor does the same midnight a second time');
  now += 86_400_000;
  t.equal(quotas.waitMs(KEY), 0, 'the next one does');
});

t.test('an authorizer that reports ever new keys neither fills the memory nor returns a used-up quota', (t) => {
  const quotas = new TokenQuotas(() => new Date('2026-06-01T12:00:00Z'));
  quotas.charge(KEY, 100);
  for (let i = 0; i < MOST_KEYS + 1000; i += 1) quotas.charge({ ...KEY, keyId: `minted-${i}` }, 1 + (i % 7));
  t.ok(quotas.size <= MOST_KEYS, `${quotas.size} keys`);
  t.ok(quotas.waitMs(KEY) > 0, 'the key still waits');
  t.end();
});
