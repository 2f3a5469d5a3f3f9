import t from 'tap';
import { PREFIX_CHUNK, prefixHashes } from '../../../engine/protocol/prefix-hash.js';
import { HeldPrefixes } from '../../../sidecar/engine-client/prefix-index.js';
import { MOST_SAVED } from '../../../engine/protocol/messages.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';

const CONTEXT = 10 * PREFIX_CHUNK;
const prompt = (chunks: number, salt: number): Uint32Array =>
  Uint32Array.from({ length: chunks * PREFIX_CHUNK }, (_, i) => i + salt);
const held = (sequence: number, tokens: Uint32Array): { sequence: number; hashes: Uint32Array } => ({
  sequence,
  hashes: prefixHashes(tokens, ALL_ACCOUNTS),
});

const longest = (index: HeldPrefixes, tokens: Uint32Array): number =>
  index.longestOf(prefixHashes(tokens, ALL_ACCOUNTS));

t.test('the longest prefix that any sequence holds, in whole chunks', async (t) => {
  const index = new HeldPrefixes(4, CONTEXT);
  t.equal(longest(index, prompt(3, 0)), 0);
  t.equal(index.apply([held(0, prompt(2, 0)), held(1, prompt(5, 0)), held(3, prompt(1, 9))]), undefined);
  t.equal(longest(index, prompt(8, 0)), 5 * PREFIX_CHUNK);
  t.equal(longest(index, prompt(3, 0).subarray(0, 3 * PREFIX_CHUNK - 1)), 2 * PREFIX_CHUNK);
  t.equal(longest(index, prompt(4, 9)), PREFIX_CHUNK);
  t.equal(longest(index, prompt(4, 5)), 0);
});

t.test('what a sequence holds no more is forgotten, and another that holds it too is not', async (t) => {
  const index = new HeldPrefixes(4, CONTEXT);
  index.apply([held(0, prompt(4, 0)), held(1, prompt(2, 0))]);
  index.apply([held(0, prompt(3, 7))]);
  t.equal(longest(index, prompt(4, 0)), 2 * PREFIX_CHUNK);
  t.equal(longest(index, prompt(4, 7)), 3 * PREFIX_CHUNK);
  index.apply([held(1, prompt(0, 0))]);
  t.equal(longest(index, prompt(4, 0)), 0);
});

t.test('more than the engine can hold breaks the protocol', async (t) => {
  const index = new HeldPrefixes(4, CONTEXT);
  t.equal(index.apply([held(4 + MOST_SAVED, prompt(1, 0))]), 'held-too-much');
  t.equal(index.apply([held(0, prompt(11, 0))]), 'held-too-much');
  t.equal(index.apply([held(0, prompt(10, 0))]), undefined);
});
