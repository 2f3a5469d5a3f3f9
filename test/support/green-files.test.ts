import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import t from 'tap';
import { GreenFiles } from './green-files.js';

t.test('a test is left out until something that it imports or names changes', (t) => {
  const root = t.testdir();
  const write = (path: string, text: string): void => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  const open = (): GreenFiles => new GreenFiles(join(root, '.cache/green.json'), root);
  write('package-lock.json', '{}');
  write('sidecar/a.ts', `export { b } from './b.js';`);
  write('sidecar/b.ts', 'export const b = 1;');
  write('sidecar/child.ts', '');
  write('test/support/source-root.ts', '');
  write(
    'test/a.test.ts',
    `import { a } from '../sidecar/a.js'; const child = new URL('../sidecar/child.js', import.meta.url);`,
  );
  write('test/other.test.ts', `import { b } from '../sidecar/b.js';`);
  write('test/tree.test.ts', `import { sourceRoot } from './support/source-root.js';`);
  const tests = ['test/a.test.ts', 'test/other.test.ts', 'test/tree.test.ts'];
  const left = (): string[] => {
    const green = open();
    return tests.filter((test) => green.has(test));
  };
  t.strictSame(left(), [], 'none has passed');
  open().passed(tests);
  t.strictSame(left(), ['test/a.test.ts', 'test/other.test.ts'], 'what reads the repository runs each time');
  write('sidecar/child.ts', '// changed');
  t.strictSame(left(), ['test/other.test.ts'], 'a module of a process that it starts');
  write('sidecar/b.ts', 'export const b = 2;');
  t.strictSame(left(), []);
  const before = open();
  t.notOk(before.has('test/a.test.ts'));
  write('sidecar/a.ts', '');
  before.passed(['test/a.test.ts']);
  t.strictSame(left(), [], 'what changed while it ran was perhaps not tested');
  open().passed(['test/a.test.ts']);
  t.strictSame(left(), ['test/a.test.ts']);
  writeFileSync(join(root, '.cache/green.json'), '{');
  t.strictSame(left(), []);
  t.end();
});
