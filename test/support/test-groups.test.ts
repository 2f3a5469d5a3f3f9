import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';
import { ALONE, groupsOf, isShort, NIGHTLY } from './test-groups.js';
import { secondsOf } from './test-seconds.js';

const root = new URL('..', import.meta.url);
const all = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.test.js'));

t.test('each test file is in exactly one group', async (t) => {
  t.strictSame(
    groupsOf(all)
      .flatMap(({ files }) => files)
      .sort(),
    [...all].sort(),
  );
});

t.test('what only make test-long runs exists, and is not much', async (t) => {
  for (const { files, why } of NIGHTLY)
    t.ok(
      all.some((file) => files.test(file)),
      why,
    );
  t.ok(all.filter((file) => !isShort(file)).length < all.length / 20);
});

t.test('the groups that take longest come first', async (t) => {
  const seconds = groupsOf(all).map(({ files }) => files.reduce((sum, file) => sum + secondsOf(file), 0));
  t.strictSame(
    seconds,
    [...seconds].sort((a, b) => b - a),
  );
});

t.test('those that need their own process have it', async (t) => {
  const groups = groupsOf(all);
  for (const file of Object.keys(ALONE)) {
    t.strictSame(groups.find(({ files }) => files.includes(file))?.files, [file], file);
  }
  const crowded = groups.filter(({ files }) => files.length > 1).flatMap(({ files }) => files);
  t.strictSame(
    crowded.filter((file) => /childrenOf\(process\.pid\)/.test(readFileSync(new URL(file, root), 'utf8'))),
    [],
    'and so has each that looks for children of its own process',
  );
  t.ok(
    groups.some(({ files }) => files.length > 10),
    'others share',
  );
});
