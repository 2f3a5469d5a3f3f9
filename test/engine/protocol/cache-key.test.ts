import fc from 'fast-check';
import t from 'tap';
import { ALL_ACCOUNTS, ClosedScopes, PREFIX_CHUNK, prefixHashes } from '../../../engine/protocol/cache-key.js';

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

t.test('one number for each whole chunk, equal for equal prefixes whatever follows', async (t) => {
  const tokens = Uint32Array.from({ length: 3 * PREFIX_CHUNK + 5 }, (_, i) => (i * 7919) % 50_000);
  const hashes = prefixHashes(tokens, ALL_ACCOUNTS);
  t.equal(hashes.length, 3);
  t.equal(prefixHashes(tokens.subarray(0, PREFIX_CHUNK - 1), ALL_ACCOUNTS).length, 0);
  for (const chunks of [1, 2]) {
    const other = Uint32Array.of(...tokens.subarray(0, chunks * PREFIX_CHUNK), ...new Uint32Array(PREFIX_CHUNK));
    const shared = prefixHashes(other, ALL_ACCOUNTS);
    t.same([...shared.subarray(0, chunks)], [...hashes.subarray(0, chunks)]);
    t.not(shared[chunks], hashes[chunks]);
  }
});

t.test('a changed token changes every number from its chunk on', async () => {
  const length = 4 * PREFIX_CHUNK;
  fc.assert(
    fc.property(fc.nat(length - 1), fc.nat(200_000), fc.nat(200_000), (at, before, after) => {
      fc.pre(before !== after);
      const hashes = [before, after].map((token) =>
        prefixHashes(new Uint32Array(length).fill(5).fill(token, at, at + 1), ALL_ACCOUNTS),
      );
      const from = Math.floor(at / PREFIX_CHUNK);
      return (hashes[0] ?? []).every((hash, i) => (hash === hashes[1]?.[i]) === i < from);
    }),
  );
});

t.test('hashes of many similar prefixes do not collide', async (t) => {
  const seen = new Set<number>();
  for (let i = 0; i < 5000; i++)
    seen.add(prefixHashes(new Uint32Array(PREFIX_CHUNK).fill(i, 0, 1), ALL_ACCOUNTS)[0] ?? -1);
  t.equal(seen.size, 5000);
});

t.test('equal tokens in two scopes have no hash in common', async (t) => {
  const tokens = new Uint32Array(3 * PREFIX_CHUNK).fill(7);
  const numbers = ['all', 'a', 'b', 'ab', ''].flatMap((scope) => [...prefixHashes(tokens, scope)]);
  t.equal(new Set(numbers).size, numbers.length);
});
