import { readdirSync } from 'node:fs';
import t from 'tap';
import { ALONE, groupsOf } from './test-groups.js';

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

t.test('those that need a process to themselves have it', async (t) => {
  const groups = groupsOf(all);
  for (const file of Object.keys(ALONE)) {
    t.strictSame(groups.find(({ files }) => files.includes(file))?.files, [file], file);
  }
  t.ok(
    groups
      .filter(({ files }) => files.some((file) => file.startsWith('fault/')))
      .every(({ files }) => files.length === 1),
    'and so has whoever kills processes',
  );
  t.ok(
    groups.some(({ files }) => files.length > 10),
    'others share',
  );
});
