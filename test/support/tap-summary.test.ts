import t from 'tap';
import { summary } from './tap-summary.js';

t.test('tap’s own counts, of the whole run', async (t) => {
  t.strictSame(summary('    # { total: 1, pass: 1 }\n# { total: 38, pass: 38 }\n# time=1ms\n', 0), {
    line: '38 passed, 0 failed',
    ok: true,
  });
  t.strictSame(summary('# { total: 18, pass: 11, fail: 6, todo: 1 }\n', 1), { line: '11 passed, 6 failed', ok: false });
});

t.test('a run that ended badly has failed, whatever it counted', async (t) => {
  t.strictSame(summary('# { total: 3, pass: 3 }\n', 1), { line: '3 passed, 1 failed', ok: false });
  t.strictSame(summary('# { total: 3, pass: 3 }\n', NaN), { line: '3 passed, 1 failed', ok: false });
  t.strictSame(summary('', 0), { line: '0 passed, 1 failed', ok: false });
  t.strictSame(summary('# { total: 0 }\n', 0), { line: '0 passed, 1 failed', ok: false });
});
