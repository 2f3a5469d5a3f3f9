import t from 'tap';
import { fingerprint, IdempotencyKeys, NO_CLAIM, parseIdempotencyKey } from '../../../sidecar/access/idempotency.js';
import type { Claim } from '../../../sidecar/access/idempotency.js';
import { FakeClock } from '../../support/fake-clock.js';

function claimed(keys: IdempotencyKeys, account: string, key: string, print = 'a'): Claim {
  const result = keys.claim(account, key, print);
  if (result.kind !== 'claimed') throw new Error(result.kind);
  return result.claim;
}

t.test('a key is a token or a quoted string', async (t) => {
  const visible = Array.from({ length: 94 }, (_, i) => String.fromCharCode(0x21 + i)).join('');
  const escaped = visible.replace(/["\\]/g, '\\$&');
  for (const [value, key] of [
    ['abc', 'abc'],
    ['"abc"', 'abc'],
    ['8e03978e-40d5-43dd-bc93-6894a57f9324', '8e03978e-40d5-43dd-bc93-6894a57f9324'],
    ['a\\b', 'a\\b'],
    ['"a\\\\b\\"c"', 'a\\b"c'],
    [`"${escaped}"`, visible],
    [visible.replace('"', ''), visible.replace('"', '')],
    ['k'.repeat(255), 'k'.repeat(255)],
    [`"${'k'.repeat(255)}"`, 'k'.repeat(255)],
    [`"${'\\\\'.repeat(255)}"`, '\\'.repeat(255)],
  ] as const)
    t.equal(parseIdempotencyKey(value), key, value);
  for (const value of [
    '',
    '""',
    '"',
    '"abc',
    'abc"',
    'a"c',
    '"a"b"',
    '"a\\b"',
    '"a\\"',
    'a b',
    '"a b"',
    '"abc";p=1',
    '"a", "b"',
    'é',
    '"é"',
    'a\tb',
    'a\x7f',
    'k'.repeat(256),
    `"${'k'.repeat(256)}"`,
  ])
    t.equal(parseIdempotencyKey(value), undefined, JSON.stringify(value));
});

t.test('a fingerprint covers the route and every byte', async (t) => {
  const long = Buffer.alloc(2 * 1024 * 1024 + 1, 'x');
  const changed = Buffer.from(long);
  changed[changed.length - 1] = 0;
  const prints = await Promise.all([
    fingerprint('chat', long),
    fingerprint('chat', changed),
    fingerprint('chat', long.subarray(1)),
    fingerprint('decisions', long),
    fingerprint('chat', Buffer.alloc(0)),
  ]);
  t.equal(new Set(prints).size, prints.length);
  t.equal(await fingerprint('chat', Buffer.from(long)), prints[0]);
  for (const print of prints) t.equal(print.length, 32, 'and only a hash');
});

t.test('once in flight, once completed, per account', async (t) => {
  const keys = new IdempotencyKeys(new FakeClock(), { maxKeys: 10, keepMs: 100 });
  const claim = claimed(keys, 'acme', 'k');
  t.match(keys.claim('acme', 'k', 'a'), { kind: 'in-flight' });
  t.match(keys.claim('acme', 'k', 'b'), { kind: 'other-body' });
  t.match(keys.claim('other', 'k', 'a'), { kind: 'claimed' }, 'another account’s key is another key');
  t.match(keys.claim('acme', 'K', 'a'), { kind: 'claimed' }, 'keys are compared exactly');
  claim.complete();
  t.match(keys.claim('acme', 'k', 'a'), { kind: 'completed' });
  t.match(keys.claim('acme', 'k', 'b'), { kind: 'other-body' });
  claim.release();
  t.match(keys.claim('acme', 'k', 'a'), { kind: 'completed' }, 'the first end counts');
});

t.test('a released key can be used as a new one', async (t) => {
  const keys = new IdempotencyKeys(new FakeClock(), { maxKeys: 10, keepMs: 100 });
  const first = claimed(keys, 'acme', 'k');
  first.release();
  t.equal(keys.size, 0);
  const second = claimed(keys, 'acme', 'k', 'b');
  first.release();
  first.complete();
  t.match(keys.claim('acme', 'k', 'b'), { kind: 'in-flight' }, 'a late end does not affect the next claim');
  second.complete();
  t.equal(keys.size, 1);
});

t.test('a completed key is kept for its time', async (t) => {
  const clock = new FakeClock();
  const keys = new IdempotencyKeys(clock, { maxKeys: 10, keepMs: 100 });
  const slow = claimed(keys, 'acme', 'slow');
  claimed(keys, 'acme', 'quick').complete();
  clock.advance(99);
  t.match(keys.claim('acme', 'quick', 'a'), { kind: 'completed' });
  clock.advance(1);
  t.match(keys.claim('acme', 'quick', 'a'), { kind: 'claimed' });
  clock.advance(1000);
  t.match(keys.claim('acme', 'slow', 'a'), { kind: 'in-flight' }, 'in flight it does not expire');
  slow.complete();
  clock.advance(99);
  t.match(keys.claim('acme', 'slow', 'a'), { kind: 'completed' }, 'its time begins with its completion');
});

t.test('when full, the oldest completed key is removed, one in flight never', async (t) => {
  const keys = new IdempotencyKeys(new FakeClock(), { maxKeys: 2, keepMs: 100 });
  const running = Array.from({ length: 5 }, (_, i) => claimed(keys, 'acme', `running ${i}`));
  for (const key of ['1', '2', '3']) claimed(keys, 'acme', key).complete();
  t.equal(keys.size, 7);
  t.match(keys.claim('acme', '2', 'a'), { kind: 'completed' });
  t.match(keys.claim('acme', '3', 'a'), { kind: 'completed' });
  for (const i of running.keys()) t.match(keys.claim('acme', `running ${i}`, 'a'), { kind: 'in-flight' });
  for (const claim of running) claim.complete();
  t.equal(keys.size, 2, 'and once completed they are no exception');
  t.match(keys.claim('acme', '1', 'a'), { kind: 'claimed' });
  t.match(keys.claim('acme', 'running 4', 'a'), { kind: 'completed' });
});

t.test('without room no key is kept', async (t) => {
  const keys = new IdempotencyKeys(new FakeClock(), { maxKeys: 0, keepMs: 100 });
  claimed(keys, 'acme', 'k').complete();
  t.equal(keys.size, 0);
  claimed(keys, 'acme', 'k');
});

t.test('a request without a key stores nothing', async () => {
  NO_CLAIM.complete();
  NO_CLAIM.release();
});
