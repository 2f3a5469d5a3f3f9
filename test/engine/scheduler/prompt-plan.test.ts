import t from 'tap';
import { PromptPlan, PromptProgress, type SavePoints } from '../../../engine/scheduler/prompt-plan.js';
import { tokenPrompt } from '../../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../../engine/protocol/cache-key.js';

const KEY = { weights: '', kv: 'f16', scope: ALL_ACCOUNTS } as const;

const tokens = (length: number, from = 0): Uint32Array => Uint32Array.from({ length }, (_, i) => from + i);
const plan = (...segments: Uint32Array[]): PromptPlan => new PromptPlan(segments.flatMap(tokenPrompt), 8, KEY);

t.test('each segment is split from its own start, and the last chunk is never empty', async (t) => {
  t.same(plan(tokens(20)).ends, [8, 16, 20]);
  t.same(plan(tokens(16)).ends, [8, 16]);
  t.same(plan(tokens(1)).ends, [1]);
  t.same(plan(tokens(10), tokens(9, 10)).ends, [8, 10, 18, 19]);
  t.same(plan(tokens(0), tokens(3)).ends, [3]);
  t.same([...plan(tokens(10), tokens(9, 10)).tokens], [...tokens(19)]);
});

t.test(
  'the progress in a plan takes from the sequence’s length to the end of the chunk that contains it',
  async (t) => {
    const progress = new PromptProgress(plan(tokens(20)), 0);
    t.same([progress.position, progress.left, progress.chunk], [0, 20, 8]);
    t.same([...progress.take(3)], [0, 1, 2]);
    t.same([progress.position, progress.left, progress.chunk], [3, 17, 5]);
    progress.take(5);
    t.equal(progress.chunk, 8);
    progress.take(8);
    t.same([progress.left, progress.chunk], [4, 4]);
    progress.take(4);
    t.same([progress.left, progress.chunk], [0, 0]);
    t.same([new PromptProgress(plan(tokens(20)), 16).chunk, new PromptProgress(plan(tokens(20)), 17).chunk], [4, 3]);
  },
);

/** A plan in chunks of 16 with so many tokens, and with marks at these places. */
function marked(length: number, places: readonly number[], more: Partial<SavePoints> = {}): PromptPlan {
  const isMark = (token: number): boolean => places.includes(token);
  return new PromptPlan(tokenPrompt(tokens(length)), 16, KEY, { upTo: length - 1, isMark, exactly: false, ...more });
}

t.test('a prompt is also split at marks, if its chunks do not become too short, and saved there', async (t) => {
  const turns = marked(120, [0, 1, 20, 21, 26, 48, 116]);
  t.same(turns.ends, [16, 21, 26, 42, 48, 64, 80, 96, 112, 116, 120]);
  t.same([...turns.saved], [21, 26, 48, 112, 116], 'and once in four chunks within a turn');
  const longer = marked(180, [0, 1, 20, 21, 26, 48, 116, 140]);
  t.same(
    longer.ends.slice(0, turns.ends.length - 1),
    turns.ends.slice(0, -1),
    'more tokens do not move earlier splits',
  );
  t.same(
    marked(180, [0, 65]).ends.slice(0, 6),
    [16, 32, 48, 61, 65, 81],
    'a mark just behind a chunk takes tokens of it',
  );
  t.same([...marked(180, [0, 65]).saved], [65, 129]);
  t.same(
    marked(90, [0, 20, 23, 48]).ends,
    [16, 20, 36, 48, 64, 80, 90],
    'a turn of three shares a chunk with the next',
  );
  t.same([...marked(90, [0, 20, 23, 48]).saved], [20, 48], 'and has no state of its own');
  t.same([...marked(120, [0, 1, 20], { exactly: true }).saved], [20, 84, 119]);
  t.same(marked(120, [0, 1, 20], { exactly: true }).ends.slice(-3), [116, 119, 120]);
});

t.test('where a turn ends and the next begins, the split is at the later mark', async (t) => {
  t.same([...marked(60, [0, 30, 32]).saved], [32], 'a line break between them, or a turn of one token');
  t.same([...marked(60, [0, 30, 31, 33]).saved], [31], 'a mark that ends the header of the turn is no further one');
  t.same([...marked(60, [0, 30, 33]).saved], [30], 'a turn of two tokens is not skipped');
  t.same(
    marked(120, [0, 30, 32, 80, 82]).ends.filter((end) => end < 60),
    marked(60, [0, 30, 32]).ends.filter((end) => end < 60),
    'a prompt that goes on has the same splits',
  );
  const before = marked(31, [0, 30], { exactly: true });
  t.same([...before.saved], [30]);
  t.same(
    [31, 32, 33].map((mark) => marked(60, [0, 30, mark]).saved.has(30)),
    [false, false, true],
    'but for one that has a mark within two tokens of the last one',
  );
});

t.test('without marks it is saved after each chunk and before its last token', async (t) => {
  t.same([...marked(40, [0]).saved], [16, 32, 39]);
  t.same(marked(40, []).ends, [16, 32, 39, 40]);
  t.same([...marked(1, []).saved], []);
  t.equal(plan(tokens(20)).saved.size, 0, 'nothing is saved if the state can be truncated');
});
