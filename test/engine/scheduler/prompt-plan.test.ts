import t from 'tap';
import { Feed, PromptPlan } from '../../../engine/scheduler/prompt-plan.js';

const tokens = (length: number, from = 0): Uint32Array => Uint32Array.from({ length }, (_, i) => from + i);

t.test('segments are split from their own start on, and the last chunk is never empty', async (t) => {
  t.same(new PromptPlan([tokens(20)], 8).ends, [8, 16, 20]);
  t.same(new PromptPlan([tokens(16)], 8).ends, [8, 16]);
  t.same(new PromptPlan([tokens(1)], 8).ends, [1]);
  t.same(new PromptPlan([tokens(10), tokens(9, 10)], 8).ends, [8, 10, 18, 19]);
  t.same(new PromptPlan([tokens(0), tokens(3)], 8).ends, [3]);
  t.same([...new PromptPlan([tokens(10), tokens(9, 10)], 8).tokens], [...tokens(19)]);
});

t.test('a feed goes from where the sequence is to the end of the chunk that lies in', async (t) => {
  const feed = new Feed(new PromptPlan([tokens(20)], 8), 0);
  t.same([feed.position, feed.left, feed.chunk], [0, 20, 8]);
  t.same([...feed.take(3)], [0, 1, 2]);
  t.same([feed.position, feed.left, feed.chunk], [3, 17, 5]);
  feed.take(5);
  t.equal(feed.chunk, 8);
  feed.take(8);
  t.same([feed.left, feed.chunk], [4, 4]);
  feed.take(4);
  t.same([feed.left, feed.chunk], [0, 0]);
  t.same(
    [new Feed(new PromptPlan([tokens(20)], 8), 16).chunk, new Feed(new PromptPlan([tokens(20)], 8), 17).chunk],
    [4, 3],
  );
});
