import t from 'tap';
import { Feed, PromptPlan } from '../../../engine/scheduler/prompt-plan.js';
import { tokenPrompt } from '../../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';

const KEY = { weights: '', kv: 'f16', scope: ALL_ACCOUNTS } as const;

const tokens = (length: number, from = 0): Uint32Array => Uint32Array.from({ length }, (_, i) => from + i);
const plan = (...segments: Uint32Array[]): PromptPlan => new PromptPlan(segments.flatMap(tokenPrompt), 8, KEY);

t.test('segments are split from their own start on, and the last chunk is never empty', async (t) => {
  t.same(plan(tokens(20)).ends, [8, 16, 20]);
  t.same(plan(tokens(16)).ends, [8, 16]);
  t.same(plan(tokens(1)).ends, [1]);
  t.same(plan(tokens(10), tokens(9, 10)).ends, [8, 10, 18, 19]);
  t.same(plan(tokens(0), tokens(3)).ends, [3]);
  t.same([...plan(tokens(10), tokens(9, 10)).tokens], [...tokens(19)]);
});

t.test('a feed goes from where the sequence is to the end of the chunk that lies in', async (t) => {
  const feed = new Feed(plan(tokens(20)), 0);
  t.same([feed.position, feed.left, feed.chunk], [0, 20, 8]);
  t.same([...feed.take(3)], [0, 1, 2]);
  t.same([feed.position, feed.left, feed.chunk], [3, 17, 5]);
  feed.take(5);
  t.equal(feed.chunk, 8);
  feed.take(8);
  t.same([feed.left, feed.chunk], [4, 4]);
  feed.take(4);
  t.same([feed.left, feed.chunk], [0, 0]);
  t.same([new Feed(plan(tokens(20)), 16).chunk, new Feed(plan(tokens(20)), 17).chunk], [4, 3]);
});
