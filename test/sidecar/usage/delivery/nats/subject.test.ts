import assert from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import { accountToken, subjectOf } from '../../../../../sidecar/usage/delivery/nats/subject.js';

t.test('an account is one token, and different accounts have different tokens', async (t) => {
  t.equal(accountToken('acme-7_X'), 'acme-7_X');
  t.equal(accountToken('a.b'), 'a%2Eb');
  t.equal(accountToken('a%2Eb'), 'a%252Eb');
  t.equal(accountToken('*'), '%2A');
  t.equal(accountToken('>'), '%3E');
  t.equal(accountToken('ü \r\n'), '%C3%BC%20%0D%0A');
  t.equal(accountToken('😀'), '%F0%9F%98%80');
  t.equal(accountToken(''), '%');
});

t.test('whatever an account’s name, its subject has as many tokens, and no wildcard', async () => {
  // No account has half of a surrogate pair: names arrive as UTF-8.
  const name = fc.string({ unit: 'binary' });
  fc.assert(
    fc.property(name, (account) => {
      assert.match(subjectOf('a.{account}.b', account), /^a\.[A-Za-z0-9_%-]+\.b$/);
    }),
  );
  fc.assert(fc.property(name, name, (one, other) => (accountToken(one) === accountToken(other)) === (one === other)));
});

t.test('special characters of replacements are literal', async (t) => {
  t.equal(subjectOf('usage.{account}', '$&'), 'usage.%24%26');
});
