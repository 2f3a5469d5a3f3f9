import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { PLAN } from '../../../bench/run/plan.js';
import { sourceRoot } from '../../support/source-root.js';

/** Results of other commands, and the last ones of benches that are gone, which pages and comments cite. */
const OTHERS =
  `ablation attention cache-cost cache-gaps console conversations conversations-http expensive-schemas fan-out grammar-stall
hostile-senders inline-size link metrics mixed-prompts-native overload-patience parse patience picker prefix-cache repacked
replicas-limit-native reuse seedling-kv seedling-long seedling-skills tls tracing-http unread-answers v8 vision-gaps vision-transport`
    .split(/\s/)
    .map((name) => `${name}.md`);

const planned = PLAN.map(({ command }) => command.split(' ')[0] ?? '');

t.test('every bench is planned, but for those of a GPU, and every planned one exists', async (t) => {
  const benches = readdirSync(join(sourceRoot, 'bench'), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.bench.ts') && !/^(gpu|\.cache)\//.test(path))
    .map((path) => path.replace(/ts$/, 'js'));
  t.strictSame(
    benches.filter((path) => !planned.includes(path)),
    [],
  );
  for (const path of planned) t.ok(existsSync(join(sourceRoot, 'bench', path.replace(/js$/, 'ts'))), path);
});

t.test('each kept result is that of one planned bench, or of a GPU', async (t) => {
  const names = PLAN.flatMap(({ results }) => results);
  t.equal(new Set(names).size, names.length, 'no two benches write one result');
  const kept = readdirSync(join(sourceRoot, 'bench/results'));
  t.strictSame(
    kept.filter(
      (file) =>
        !OTHERS.includes(file) &&
        !/^README\.md$/.test(file) &&
        !/^gpu-/.test(file) &&
        !names.includes(file.replace(/\.\w+$/, '')),
    ),
    [],
  );
});
