import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import t from 'tap';
import { filesOf } from '../../../bench/support/bench-files.js';

const root = mkdtempSync(join(tmpdir(), 'ra-bench-files-'));
t.teardown(() => rmSync(root, { recursive: true, force: true }));
const write = (path: string, text: string): void => {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
};

t.test('a bench depends on what it imports, starts and reads, and on nothing else', async (t) => {
  write(
    'bench/a/a.bench.ts',
    `import { b } from '../b/b.js';
import type { Shape } from '../b/shape.js';
import {
  c,
} from './c.js';
const CHILD = new URL('../../engine/main.js', import.meta.url);
const DATA = new URL('../../../bench/a/data.jsonl', import.meta.url);
const MADE = new URL('../../../bench/.cache/', import.meta.url);
const RESULTS = new URL('../../../bench/results/', import.meta.url);
const ROOT = new URL('../../../', import.meta.url);
await import('./later.js');`,
  );
  for (const path of ['bench/b/b.ts', 'bench/b/shape.ts', 'bench/a/c.ts', 'bench/a/later.ts', 'bench/a/data.jsonl'])
    write(path, '');
  for (const path of ['bench/.cache/x', 'bench/results/a.md', 'engine/native/x.cpp', 'sidecar/cli.ts']) write(path, '');
  write('engine/main.ts', `import './llama/addon.js';\nconst pages = new URL('../../engine/pages/', import.meta.url);`);
  write('engine/llama/addon.ts', `import { main } from '../main.js';`);
  write('engine/pages/page.html', '');
  write('engine/pages/counts.ts', `import { sum } from '../sum.js';`);
  write('engine/sum.ts', '');
  t.strictSame(filesOf('bench/a/a.bench.ts', root), [
    'bench/a/a.bench.ts',
    'bench/a/c.ts',
    'bench/a/data.jsonl',
    'bench/a/later.ts',
    'bench/b/b.ts',
    'engine/llama/addon.ts',
    'engine/main.ts',
    'engine/native',
    'engine/pages',
    'engine/sum.ts',
    'package-lock.json',
  ]);
  t.strictSame(filesOf('bench/b/b.ts', root), ['bench/b/b.ts', 'package-lock.json']);
});

t.test('a bench does not depend on what judges its result', async (t) => {
  const files = filesOf('bench/engine/limit.bench.ts');
  t.ok(files.includes('bench/support/results.ts'));
  for (const judge of ['bench-files', 'machine-speed']) t.notOk(files.includes(`bench/support/${judge}.ts`), judge);
});
