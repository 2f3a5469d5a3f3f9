import t from 'tap';
import { pick, readingOf, scores } from '../../../bench/picker/scorers.js';

const NAMES = { waiting: 'queued', kvUsage: 'usage' };

t.test('scores: the shortest queue gets the full weight, the longest none; usage lowers the score', async (t) => {
  t.strictSame(
    scores([
      { waiting: 0, kvUsage: 1 },
      { waiting: 5, kvUsage: 0.5 },
      { waiting: 10, kvUsage: 0 },
    ]),
    [2, 2, 2],
  );
  t.strictSame(
    scores([
      { waiting: 3, kvUsage: 0.25 },
      { waiting: 3, kvUsage: 1 },
    ]),
    [3.5, 2],
    'equal queues get equal scores',
  );
});

t.test('the highest score is picked, equal ones in turn', async (t) => {
  const idle = { waiting: 0, kvUsage: 0 };
  t.equal(
    pick([{ waiting: 1, kvUsage: 0 }, idle, { waiting: 0, kvUsage: 0.5 }], () => 0.99),
    1,
  );
  t.strictSame(
    [0, 0.4, 0.99].map((at) => pick([idle, idle, { waiting: 2, kvUsage: 0 }], () => at)),
    [0, 0, 1],
  );
});

t.test('a metrics page is read as the picker reads it: the first sample of a name', async (t) => {
  const page =
    '# HELP queued x\n# TYPE queued gauge\nqueued_bytes 9\nqueued{model="a"} 3\nqueued{model="b"} 4\nusage 0.5\n';
  t.strictSame(readingOf(page, NAMES), { waiting: 3, kvUsage: 0.5 });
  t.throws(() => readingOf('usage 1\n', NAMES), /no queued/);
});
