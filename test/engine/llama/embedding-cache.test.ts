import t from 'tap';
import { EmbeddingCache, ImageEncoder } from '../../../engine/llama/embedding-cache.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';
import type { EncodeTask } from '../../../engine/protocol/vision-messages.js';
import { FakeClock } from '../../support/fake-clock.js';

const digest = (of: number): Uint8Array => new Uint8Array(32).fill(of);
const HOUR = 3_600_000;
const cached = (bytes: number, clock = new FakeClock()): EmbeddingCache => new EmbeddingCache(bytes, HOUR, clock);
const embeddings = (numbers: number): Float32Array[] => [new Float32Array(numbers)];

t.test('entries fit into the bytes; the least recently used is removed first', async (t) => {
  const cache = cached(40);
  const [a, b, c] = [embeddings(4), embeddings(4), embeddings(5)];
  cache.set(digest(1), a, 'acme');
  cache.set(digest(2), b, 'acme');
  t.equal(cache.bytes, 32);
  t.equal(cache.get(digest(1)), a);
  cache.set(digest(3), c, 'acme');
  t.equal(cache.get(digest(2)), undefined);
  t.equal(cache.get(digest(1)), a);
  t.equal(cache.get(digest(3)), c);
  t.equal(cache.bytes, 36);
  cache.set(digest(3), embeddings(1), 'acme');
  t.equal(cache.bytes, 36, 'adding an entry again changes nothing');
});

t.test('larger ones are not kept, and none if the cache has no bytes', async (t) => {
  const cache = cached(40);
  cache.set(digest(1), embeddings(4), 'acme');
  cache.set(digest(2), embeddings(11), 'acme');
  t.equal(cache.get(digest(2)), undefined);
  t.ok(cache.get(digest(1)), 'and remove none');
  const none = cached(0);
  none.set(digest(1), embeddings(1), 'acme');
  t.equal(none.get(digest(1)), undefined);
});

t.test('a digest depends on the bytes alone, wherever they are in memory', async (t) => {
  const cache = cached(40);
  cache.set(digest(7), embeddings(1), 'acme');
  t.ok(cache.get(new Uint8Array([0, ...digest(7)]).subarray(1)));
});

t.test('what was not used for the longest age is dropped', async (t) => {
  const clock = new FakeClock();
  const cache = cached(100, clock);
  cache.set(digest(1), embeddings(1), 'acme');
  cache.set(digest(2), embeddings(1), 'acme');
  clock.advance(HOUR);
  t.ok(cache.get(digest(1)));
  clock.advance(1);
  cache.expire();
  t.equal(cache.bytes, 4);
  t.equal(cache.get(digest(2)), undefined);
  t.ok(cache.get(digest(1)));
  clock.advance(HOUR + 1);
  t.equal(cache.get(digest(1)), undefined);
  t.equal(cache.bytes, 0);
});

t.test('a closed account’s are dropped, and none of it are kept from then on', async (t) => {
  const cache = cached(100);
  cache.set(digest(1), embeddings(1), 'acme');
  cache.set(digest(2), embeddings(1), 'globex');
  cache.forget('acme');
  t.equal(cache.get(digest(1)), undefined);
  t.ok(cache.get(digest(2)));
  cache.set(digest(3), embeddings(1), 'acme');
  t.equal(cache.get(digest(3)), undefined, 'an image that was being encoded');
  t.equal(cache.bytes, 4);
});

t.test('where accounts share one scope, all is dropped, and later ones are kept', async (t) => {
  const cache = cached(100);
  cache.set(digest(1), embeddings(1), ALL_ACCOUNTS);
  cache.forget(ALL_ACCOUNTS);
  t.equal(cache.bytes, 0);
  cache.set(digest(2), embeddings(1), ALL_ACCOUNTS);
  t.ok(cache.get(digest(2)));
});

t.test('images are encoded one at a time in their order, a repeated one once, and a failure stops none', async (t) => {
  const task = (of: number): EncodeTask => {
    const size = { width: 1, height: 1 };
    return { digest: digest(of), scope: 'acme', bytes: Uint8Array.of(of), size, shrunk: size };
  };
  const begun: number[] = [];
  const ends: (() => void)[] = [];
  const encoder = new ImageEncoder(
    {
      encode: async ({ bytes: [of = 0] }) => {
        begun.push(of);
        await new Promise<void>((resolve) => ends.push(resolve));
        if (of === 2) throw new Error('undecodable');
        return embeddings(of);
      },
    },
    cached(1000),
  );
  const answers = [1, 1, 2, 3].map((of) => encoder.encode(task(of)));
  for (const expected of [[1], [1, 2], [1, 2, 3]]) {
    while (ends.length === 0) await new Promise((resolve) => setImmediate(resolve));
    t.same(begun, expected, 'no other is begun before the last one has ended');
    ends.shift()?.();
  }
  t.same(await Promise.all(answers), [
    { kind: 'encoded', embeddings: embeddings(1) },
    { kind: 'encoded', embeddings: embeddings(1) },
    { kind: 'refused', why: 'undecodable' },
    { kind: 'encoded', embeddings: embeddings(3) },
  ]);
  const many = Array.from({ length: 20 }, (_, of) => encoder.encode(task(of + 10)));
  t.same(await many.at(-1), { kind: 'refused', why: 'failed' }, 'a bound of those that wait');
});
