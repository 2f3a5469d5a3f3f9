import t from 'tap';
import { FailedKeyLimit, networkOf } from '../../../sidecar/access/failed-keys.js';
import { KeyFileIdentity } from '../../../sidecar/access/key-identity.js';
import type { Caller, Denied } from '../../../sidecar/access/identity.js';
import { FakeClock } from '../../support/fake-clock.js';
import { makeKey, sends } from '../../support/keys.js';

const good = makeKey();
const revoked = makeKey({ revoked: '2026-01-02T00:00:00Z' });
const expired = makeKey({ expires: '2026-01-02T00:00:00Z' });
const frozen = makeKey({ account: 'icy' });
const FILE = {
  version: 1,
  accounts: { icy: { frozen: true } },
  keys: [good, revoked, expired, frozen].map(({ stored }) => stored),
} as const;

class Guarded {
  readonly clock = new FakeClock();
  readonly limit: FailedKeyLimit;

  constructor(perMinute: number) {
    this.limit = new FailedKeyLimit(this.clock, new KeyFileIdentity(FILE, 'development'), perMinute);
  }

  ask(key: string, address = '192.0.2.1'): Promise<Caller | Denied> {
    return this.limit.resolve(sends(`Bearer ${key}`, address));
  }

  /** The codes of several answers. */
  async codes(key: string, times: number, address?: string): Promise<string[]> {
    const answers: string[] = [];
    for (let i = 0; i < times; i++) {
      const answer = await this.ask(key, address);
      answers.push(answer.kind === 'denied' ? answer.code : 'caller');
    }
    return answers;
  }
}

t.test('past the limit a failing key gets 429 with Retry-After', async (t) => {
  const guarded = new Guarded(3);
  t.strictSame(await guarded.codes('wrong', 3), Array(3).fill('invalid_api_key'));
  t.strictSame(await guarded.ask('wrong'), { kind: 'denied', code: 'user_rate_limited', retryAfterMs: 20_000 });
  for (const { key } of [revoked, expired]) t.match(await guarded.ask(key), { code: 'user_rate_limited' });
  t.match(await guarded.limit.resolve(sends(undefined, '192.0.2.1')), { code: 'user_rate_limited' }, 'no key at all');
  t.equal((await guarded.codes('wrong', 1, '192.0.2.2'))[0], 'invalid_api_key', 'another address');
  guarded.clock.advance(19_999);
  t.match(await guarded.ask('wrong'), { retryAfterMs: 1 });
  guarded.clock.advance(1);
  t.strictSame(await guarded.codes('wrong', 2), ['invalid_api_key', 'user_rate_limited']);
  guarded.clock.advance(60_000);
  t.strictSame(await guarded.codes('wrong', 4), [...Array<string>(3).fill('invalid_api_key'), 'user_rate_limited']);
});

t.test('past the limit a known key still has its names, for the log', async (t) => {
  const guarded = new Guarded(1);
  await guarded.codes('wrong', 1);
  const known = { account: 'acme', keyId: revoked.stored.id };
  t.match(await guarded.ask(revoked.key), { code: 'user_rate_limited', known });
});

t.test('a valid key passes from any address, and errors of its account stay the same', async (t) => {
  const guarded = new Guarded(1);
  await guarded.codes('wrong', 100);
  t.match(await guarded.ask('wrong'), { code: 'user_rate_limited' });
  t.strictSame(await guarded.codes(good.key, 50), Array(50).fill('caller'));
  t.strictSame(await guarded.codes(frozen.key, 2), ['account_frozen', 'account_frozen']);
});

t.test('valid keys, and keys of a frozen account, use up nothing', async (t) => {
  const guarded = new Guarded(1);
  await guarded.codes(good.key, 50);
  await guarded.codes(frozen.key, 50);
  t.equal(guarded.limit.size, 0);
  t.equal((await guarded.codes('wrong', 1))[0], 'invalid_api_key');
});

t.test('each of the three 401s counts', async (t) => {
  const guarded = new Guarded(3);
  t.strictSame(
    [
      ...(await guarded.codes(revoked.key, 1)),
      ...(await guarded.codes(expired.key, 1)),
      ...(await guarded.codes('', 1)),
    ],
    ['revoked_api_key', 'expired_api_key', 'invalid_api_key'],
  );
  t.match(await guarded.ask('wrong'), { code: 'user_rate_limited' });
});

t.test('0: no limit', async (t) => {
  const guarded = new Guarded(0);
  t.strictSame(new Set(await guarded.codes('wrong', 1000)), new Set(['invalid_api_key']));
  t.equal(guarded.limit.size, 0);
});

t.test('a /64 is one caller, and addresses are bounded', async (t) => {
  const guarded = new Guarded(1);
  await guarded.ask('wrong', '2001:db8:0:1::1');
  t.match(await guarded.ask('wrong', '2001:db8:0:1:ffff:ffff:ffff:ffff'), { code: 'user_rate_limited' });
  t.match(await guarded.ask('wrong', '2001:db8:0:2::1'), { code: 'invalid_api_key' });
  for (let i = 0; i < 20_000; i++) await guarded.ask('wrong', `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`);
  t.equal(guarded.limit.size, 16_384);
  t.match(await guarded.ask('wrong', '10.0.78.31'), { code: 'user_rate_limited' }, 'the latest is remembered');
  t.match(await guarded.ask('wrong', '2001:db8:0:1::1'), { code: 'invalid_api_key' }, 'the first was forgotten');
});

t.test('networks', async (t) => {
  const cases: Record<string, string> = {
    '': '',
    '192.0.2.1': '192.0.2.1',
    '::1': '0:0:0:0::/64',
    '0000:0000:0000:0000:0000:0000:0000:0001': '0:0:0:0::/64',
    '2001:0DB8:00a0:0001:0002:0003:0004:0005': '2001:db8:a0:1::/64',
    '2001:db8::a:b:c:d': '2001:db8:0:0::/64',
    '2001:db8:1:2::': '2001:db8:1:2::/64',
    'fe80::1%eth0': 'fe80:0:0:0::/64',
    '::ffff:192.0.2.1': '192.0.2.1',
    '0000:0000:0000:0000:0000:ffff:c000:0201': '192.0.2.1',
    '64:ff9b::192.0.2.1': '64:ff9b:0:0::/64',
    'not an address': 'not an address',
  };
  for (const [address, network] of Object.entries(cases)) t.equal(networkOf(address), network, address);
});
