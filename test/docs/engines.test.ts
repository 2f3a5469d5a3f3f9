import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { MISBEHAVIOURS } from '../support/misbehaviours.js';
import { sourceRoot } from '../support/source-root.js';

t.test('docs/engines.md lists each way to misbehave that is tested', (t) => {
  const page = readFileSync(join(sourceRoot, 'docs/engines.md'), 'utf8');
  const names = new Set(MISBEHAVIOURS.map(({ name }) => name));
  t.strictSame(
    [...names].filter((name) => !page.includes(name)),
    [],
  );
  t.ok(MISBEHAVIOURS.length >= 40, `${MISBEHAVIOURS.length} ways`);
  t.end();
});
