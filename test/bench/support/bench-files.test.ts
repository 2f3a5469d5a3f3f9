import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import t from 'tap';
import { PLAN, sourceOf } from '../../../bench/run/plan.js';
import { digestOf, filesOf, runningBench } from '../../../bench/support/bench-files.js';

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

t.test('planned benches depend on the programs that they start, and on no others', async (t) => {
  const of = (command: string): readonly string[] => filesOf(`bench/${command}`);
  const some = (files: readonly string[], folder: string): boolean => files.some((file) => file.startsWith(folder));
  const engine = of('engine/limit.bench.ts');
  for (const file of ['engine/main.ts', 'engine/llama/batch-decoder.ts', 'engine/native', 'bench/support/limit.ts'])
    t.ok(engine.includes(file), `the engine: ${file}`);
  for (const folder of ['sidecar/http/', 'sidecar/api/', 'docs/', 'test/sidecar', 'bench/overload'])
    t.notOk(some(engine, folder), `the engine: ${folder}`);
  const service = of('overload/overload.bench.ts');
  for (const file of [
    ...['sidecar/cli.ts', 'sidecar/commands/serve.ts', 'sidecar/http/uws.ts', 'sidecar/prompts/item-work.ts'],
    ...['engine/main.ts', 'engine/remote/main.ts', 'engine/llama/mask-worker.ts', 'bench/overload/generator.ts'],
    ...['engine/assets/seedling.gguf', '.ci/bundle.mjs', 'sidecar/build/written-schemas.ts'],
  ])
    t.ok(service.includes(file), `the sidecar: ${file}`);
  t.notOk(service.includes('bench/http/streams.bench.ts'));
  const simulated = of('admission/admission.bench.ts');
  t.ok(simulated.includes('sidecar/admission/queue.ts'));
  for (const folder of ['engine/llama/', 'engine/native', 'sidecar/http/']) t.notOk(some(simulated, folder), folder);
  t.strictSame(
    PLAN.filter((bench) => !filesOf(sourceOf(bench)).includes('bench/support/results.ts')).map(sourceOf),
    [],
    'all write a result',
  );
  t.strictSame(
    PLAN.flatMap((bench) => filesOf(sourceOf(bench))).filter((file) => /^docs|\.test\.ts$/.test(file)),
    [],
    'none depends on pages or tests',
  );
});

t.test('a digest changes with the contents of files and folders, and with nothing else', async (t) => {
  const files = ['package-lock.json', 'engine/native'];
  write('package-lock.json', '{}');
  const digest = digestOf(files, root);
  write('engine/main.ts', 'other');
  t.equal(digestOf(files, root), digest);
  write('engine/native/x.cpp', 'int x;');
  t.not(digestOf(files, root), digest);
  write('engine/native/x.cpp', '');
  t.equal(digestOf(files, root), digest);
  write('engine/native/later/y.cpp', '');
  t.not(digestOf(files, root), digest);
});

t.test('the bench that runs is known by its process', async (t) => {
  t.equal(runningBench('/somewhere/dist/bench/http/tls.bench.js'), 'bench/http/tls.bench.ts');
  for (const script of ['/somewhere/else.js', '/somewhere/dist/test/bench/support/pieces.test.js'])
    t.equal(runningBench(script), undefined, script);
});
