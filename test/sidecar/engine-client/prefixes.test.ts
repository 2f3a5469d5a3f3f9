import t from 'tap';
import { PREFIX_CHUNK, prefixHashes, ALL_ACCOUNTS, type SharedState } from '../../../engine/protocol/cache-key.js';
import { CacheScopes, HeldPrefixes } from '../../../sidecar/engine-client/prefixes.js';
import { MOST_SAVED } from '../../../engine/protocol/messages.js';

const CONTEXT = 10 * PREFIX_CHUNK;
const prompt = (chunks: number, salt: number): Uint32Array =>
  Uint32Array.from({ length: chunks * PREFIX_CHUNK }, (_, i) => i + salt);
const held = (sequence: number, tokens: Uint32Array): { sequence: number; hashes: Uint32Array } => ({
  sequence,
  hashes: prefixHashes(tokens, ALL_ACCOUNTS),
});

const longest = (index: HeldPrefixes, tokens: Uint32Array): number =>
  index.longestOf(prefixHashes(tokens, ALL_ACCOUNTS));

t.test('the longest prefix in any sequence, in whole chunks', async (t) => {
  const index = new HeldPrefixes(4, CONTEXT);
  t.equal(longest(index, prompt(3, 0)), 0);
  t.equal(index.apply([held(0, prompt(2, 0)), held(1, prompt(5, 0)), held(3, prompt(1, 9))]), undefined);
  t.equal(longest(index, prompt(8, 0)), 5 * PREFIX_CHUNK);
  t.equal(longest(index, prompt(3, 0).subarray(0, 3 * PREFIX_CHUNK - 1)), 2 * PREFIX_CHUNK);
  t.equal(longest(index, prompt(4, 9)), PREFIX_CHUNK);
  t.equal(longest(index, prompt(4, 5)), 0);
});

t.test('a prefix that a sequence no longer has is forgotten, unless another has it', async (t) => {
  const index = new HeldPrefixes(4, CONTEXT);
  index.apply([held(0, prompt(4, 0)), held(1, prompt(2, 0))]);
  index.apply([held(0, prompt(3, 7))]);
  t.equal(longest(index, prompt(4, 0)), 2 * PREFIX_CHUNK);
  t.equal(longest(index, prompt(4, 7)), 3 * PREFIX_CHUNK);
  index.apply([held(1, prompt(0, 0))]);
  t.equal(longest(index, prompt(4, 0)), 0);
});

t.test('what other processes can restore is counted by itself, with the state that has most', async (t) => {
  const index = new HeldPrefixes(4, CONTEXT);
  const state = (inode: number): SharedState => ({ file: 3, inode, bytes: 10, tokens: 5, ends: 1, changedAt: 7 });
  const shared = (tokens: Uint32Array): unknown => index.sharedState(prefixHashes(tokens, ALL_ACCOUNTS));
  index.apply([
    held(0, prompt(5, 0)),
    { ...held(4, prompt(2, 0)), state: state(1) },
    { ...held(5, prompt(3, 0)), state: state(2) },
  ]);
  t.equal(longest(index, prompt(8, 0)), 5 * PREFIX_CHUNK);
  t.equal(index.longestShared(prefixHashes(prompt(8, 0), ALL_ACCOUNTS)), 3 * PREFIX_CHUNK);
  t.strictSame(shared(prompt(8, 0)), state(2));
  t.equal(shared(prompt(8, 9)), undefined);
  index.apply([held(5, prompt(0, 0))]);
  t.strictSame(shared(prompt(8, 0)), state(1));
  index.apply([held(4, prompt(4, 0))]);
  t.equal(shared(prompt(8, 0)), undefined, 'nothing is shared any more');
});

t.test('more than the engine can have is a protocol violation', async (t) => {
  const index = new HeldPrefixes(4, CONTEXT);
  t.equal(index.apply([held(4 + MOST_SAVED, prompt(1, 0))]), 'held-too-much');
  t.equal(index.apply([held(0, prompt(11, 0))]), 'held-too-much');
  t.equal(index.apply([held(0, prompt(10, 0))]), undefined);
});

t.test('an account has its own scope, which does not contain its name', async (t) => {
  const scopes = new CacheScopes('account');
  t.equal(scopes.of('acme'), scopes.of('acme'));
  t.match(scopes.of('acme'), /^[\w-]{22}$/);
  const all = new Set(Array.from({ length: 1000 }, (_, i) => scopes.of(`account-${i}`)));
  t.equal(all.size, 1000);
  t.not(new CacheScopes('account').of('acme'), scopes.of('acme'), 'another process has another secret');
});

t.test('a closed account gets another one', async (t) => {
  const scopes = new CacheScopes('account');
  const [first, other] = [scopes.of('acme'), scopes.of('globex')];
  t.equal(scopes.close('acme'), first);
  const second = scopes.of('acme');
  t.not(second, first);
  t.equal(scopes.close('acme'), second);
  t.not(scopes.of('acme'), second);
  t.equal(scopes.of('globex'), other);
});

t.test('or all accounts have one', async (t) => {
  const scopes = new CacheScopes('all');
  t.equal(scopes.of('acme'), ALL_ACCOUNTS);
  t.equal(scopes.close('acme'), ALL_ACCOUNTS);
  t.equal(scopes.of('globex'), ALL_ACCOUNTS);
});
