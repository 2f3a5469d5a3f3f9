import t from 'tap';
import { EmbeddingCache } from '../../../engine/llama/embedding-cache.js';

const digest = (of: number): Uint8Array => new Uint8Array(32).fill(of);
const embeddings = (numbers: number): Float32Array[] => [new Float32Array(numbers)];

t.test('entries fit into the bytes; the least recently used is removed first', async (t) => {
  const cache = new EmbeddingCache(40);
  const [a, b, c] = [embeddings(4), embeddings(4), embeddings(5)];
  cache.set(digest(1), a);
  cache.set(digest(2), b);
  t.equal(cache.bytes, 32);
  t.equal(cache.get(digest(1)), a);
  cache.set(digest(3), c);
  t.equal(cache.get(digest(2)), undefined);
  t.equal(cache.get(digest(1)), a);
  t.equal(cache.get(digest(3)), c);
  t.equal(cache.bytes, 36);
  cache.set(digest(3), embeddings(1));
  t.equal(cache.bytes, 36, 'adding an entry again changes nothing');
});

t.test('larger ones are not kept, and none if the cache has no bytes', async (t) => {
  const cache = new EmbeddingCache(40);
  cache.set(digest(1), embeddings(4));
  cache.set(digest(2), embeddings(11));
  t.equal(cache.get(digest(2)), undefined);
  t.ok(cache.get(digest(1)), 'and remove none');
  const none = new EmbeddingCache(0);
  none.set(digest(1), embeddings(1));
  t.equal(none.get(digest(1)), undefined);
});

t.test('a digest depends on the bytes alone, wherever they are in memory', async (t) => {
  const cache = new EmbeddingCache(40);
  cache.set(digest(7), embeddings(1));
  t.ok(cache.get(new Uint8Array([0, ...digest(7)]).subarray(1)));
});
