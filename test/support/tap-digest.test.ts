import t from 'tap';
import { TapDigest } from './tap-digest.js';

function digest(text: string, status: number) {
  const tap = new TapDigest();
  const shown = text.split('\n').filter((line) => tap.shows(line));
  return { shown, ...tap.verdict(status) };
}

t.test('a successful run: its files, the coverage table and tap’s own counts', async (t) => {
  const { shown, ...verdict } = digest(
    `TAP version 14
# Subtest: dist/test/a.test.js
    # Subtest: inner
        ok 1 - should be equal
        1..1
    ok 1 - inner # time=1ms
    1..1
    # { total: 7, pass: 7 }
ok 1 - dist/test/a.test.js # time=12ms
---------|---------|----------|---------|---------|----
File     | % Stmts | % Branch | % Funcs | % Lines | Not
 a.ts    |     100 |      100 |     100 |     100 |
    # Subtest: dist/test/b.test.js
        ok 1 - inner
    ok 1 - dist/test/b.test.js # time=2ms
ok 2 - dist/test/groups/unit-1.js # time=3ms
# { total: 38, pass: 38 }
# time=1ms`,
    0,
  );
  t.strictSame(
    shown.map((line) => line.slice(0, 10)),
    ['ok 1 - dis', '---------|', 'File     |', ' a.ts    |', '    ok 1 -', 'ok 2 - dis'],
  );
  t.same(verdict, { passed: 38, failed: 0, ok: true });
});

t.test('a failure is shown with its details, whatever their form', async (t) => {
  const failure = `        not ok 1 - should be equal
          ---
          diff: |
            ok 1 - not a result
              ...
            # { total: 99, pass: 99 }
          ...`;
  const { shown, ...verdict } = digest(
    `        ok 3 - fine\n${failure}\n        ok 2 - fine\n# { total: 18, pass: 11, fail: 6, todo: 1 }`,
    1,
  );
  t.strictSame(shown, failure.split('\n'));
  t.same(verdict, { passed: 11, failed: 6, ok: false });
});

t.test('a failure without details hides nothing', async (t) => {
  const { shown, ...verdict } = digest(
    '    not ok 1 - x # TODO later\n    ok 2 - y\n# { total: 2, pass: 1, todo: 1 }',
    0,
  );
  t.strictSame(shown, ['    not ok 1 - x # TODO later']);
  t.same(verdict, { passed: 1, failed: 0, ok: true });
});

t.test('a run with a failure status has failed, whatever it counted', async (t) => {
  t.match(digest('# { total: 3, pass: 3 }', 1), { passed: 3, failed: 1, ok: false });
  t.match(digest('# { total: 0 }', 0), { passed: 0, failed: 1, ok: false });
  t.match(digest('', 0), { passed: 0, failed: 1, ok: false });
});
