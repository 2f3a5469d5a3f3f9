import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { configSchema } from '../../sidecar/config/schema.js';
import { settings } from '../../sidecar/config/setting.js';
import { sourceRoot } from '../support/source-root.js';
import { readPages } from './pages.js';

const read = (path: string): string => readFileSync(join(sourceRoot, path), 'utf8');
const pages = readPages();

/** What pages name, with its place; `pattern` has one group. */
function named(
  pattern: RegExp,
  texts = pages.map(({ path, text }) => ({ path, text })),
): [name: string, path: string][] {
  return texts.flatMap(({ path, text }) =>
    [...text.matchAll(pattern)].map(([, name = '']): [string, string] => [name, path]),
  );
}

function missing(all: readonly [string, string][], known: (name: string) => boolean): string[] {
  return all.filter(([name]) => !known(name)).map(([name, path]) => `${path}: ${name}`);
}

t.test('metrics that pages name exist', async (t) => {
  const reference = read('docs/metrics.md');
  const all = named(/\b((?:ra_sidecar|gen_ai_(?:server|client)|http_server|process|nodejs)_[a-z0-9_]+[a-z0-9])\b/g);
  t.ok(all.length > 100);
  t.strictSame(
    missing(all, (name) => reference.includes(`\`${name.replace(/_(?:bucket|sum|count)$/, '')}\``)),
    [],
  );
});

t.test('settings and variables that pages name exist', async (t) => {
  // A model’s own settings may also be named without `models[].`, as in the table of models.
  const model = settings(configSchema.properties.models.items).flatMap(({ path }) => [path, `models[].${path}`]);
  const paths = new Set([...settings(configSchema).map(({ path }) => path), ...model]);
  const sections = new Set(settings(configSchema).map(({ path }) => path.split('.')[0] ?? ''));
  const all = named(/`([a-z]+(?:\[\])?\.[a-zA-Z.]+)(?:: [^`]*)?`/g)
    .filter(([name]) => sections.has(name.split(/[.[]/)[0] ?? '') && !/\.(?:jsonl?|md|ts)$/.test(name))
    // Fields of answers, and a section with all that is in it.
    .filter(([name]) => !/^usage\.(?:prompt|completion|total)_/.test(name) && !name.startsWith('usage.'))
    .filter(([name, path]) => !path.startsWith('docs/api-') || !name.startsWith('pricing.'));
  t.ok(all.length > 50);
  t.strictSame(
    missing(all, (name) => paths.has(name) || [...paths].some((path) => path.startsWith(`${name}.`))),
    [],
  );
  const variables = new Set([
    ...settings(configSchema).map(({ variable }) => variable),
    'RA_CONFIG',
    'RA_LLAMA_SERVER',
  ]);
  t.strictSame(
    missing(named(/\b(RA_[A-Z][A-Z_]*[A-Z])\b/g), (name) => variables.has(name)),
    [],
  );
});
