import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import * as whole from 'node-llama-cpp';
import t from 'tap';
import * as used from '../../../engine/llama/package.js';
import { packageVersion } from '../../../engine/llama/addon-file.js';

const { bundleFor, ...values } = used;

t.test('the module of the build is the package’s, and no other one', async (t) => {
  const bundle = bundleFor(packageVersion());
  if (bundle === undefined) throw new Error('the build has not written it: run make build');
  const names = Object.keys((await import(bundle.href)) as object);
  t.strictSame(names.sort(), Object.keys(values).sort(), 'what is asked of it');
  t.not(values.Llama, whole.Llama, 'the package itself was not imported for it');
  for (const name of ['GgmlType', 'GgufFileType', 'LlamaLogLevel'] as const) t.strictSame(values[name], whole[name]);
  for (const name of ['GgufInsights', 'Llama', 'LlamaGrammarEvaluationState', 'TokenBias'] as const) {
    const of = (type: { readonly prototype: object }): string[] => Object.getOwnPropertyNames(type.prototype).sort();
    t.strictSame(of(values[name]), of(whole[name]), name);
  }
});

t.test('another version than the one it was written from', (t) => {
  t.equal(bundleFor('0.0.0'), undefined);
  const folder = mkdtempSync(join(tmpdir(), 'ra-bundle-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const url = pathToFileURL(`${folder}/`);
  t.equal(bundleFor('1.2.3', url), undefined);
  writeFileSync(join(folder, 'node-llama-cpp-1.2.3.js'), '');
  t.equal(bundleFor('1.2.3', url)?.href, new URL('node-llama-cpp-1.2.3.js', url).href);
  t.end();
});

t.test('the licences of what is in it lie beside it', (t) => {
  const file = new URL('./LICENSES.txt', bundleFor(packageVersion()));
  t.ok(existsSync(file));
  const text = readFileSync(file, 'utf8');
  for (const name of ['node-llama-cpp', 'lifecycle-utils', 'chalk', 'fs-extra'])
    t.match(text, new RegExp(`^${name} \\d`, 'm'));
  t.end();
});
