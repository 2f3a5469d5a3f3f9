/** The part of node-llama-cpp that the build puts in place of the package. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as whole from 'node-llama-cpp';
import t from 'tap';
import * as used from '../../../engine/llama/package.js';
import { KNOWN_VERSION, packageVersion } from '../../../engine/llama/addon-file.js';
import { bundleCheckout } from '../../support/models.js';
import { sourceRoot } from '../../support/source-root.js';

t.test('it is the package’s code, of the version that is served', (t) => {
  t.equal(packageVersion(), KNOWN_VERSION);
  t.not(used.Llama, whole.Llama, 'the package itself was not imported for it');
  for (const name of ['GgmlType', 'GgufFileType', 'LlamaLogLevel'] as const) t.strictSame(used[name], whole[name]);
  for (const name of ['GgufInsights', 'Llama', 'LlamaGrammarEvaluationState', 'TokenBias'] as const) {
    const of = (type: { readonly prototype: object }): string[] => Object.getOwnPropertyNames(type.prototype).sort();
    t.strictSame(of(used[name]), of(whole[name]), name);
  }
  t.end();
});

t.test('it reads heads of files as the package does', async (t) => {
  const folder = join(await bundleCheckout(), 'models');
  // Vocabularies of 32,000 to 152,000 texts.
  const vocabularies = ['llama-spm', 'qwen2', 'bert-bge'].map((name) => join(folder, `ggml-vocab-${name}.gguf`));
  const models = [join(sourceRoot, 'engine/assets/seedling.gguf'), ...vocabularies];
  for (const model of models) {
    const [ours, theirs] = await Promise.all(
      [used, whole].map((from) => from.readGgufFileInfo(model, { sourceType: 'filesystem', logWarnings: false })),
    );
    t.strictSame(ours, theirs, model);
  }
});

t.test('the licences of what is in the programs lie beside them', (t) => {
  const text = readFileSync(`${sourceRoot}/dist/sidecar/LICENSES.txt`, 'utf8');
  for (const name of ['node-llama-cpp', 'lifecycle-utils', 'chalk', 'fs-extra', 'pino', 'prom-client', 'jsonc-parser'])
    t.match(text, new RegExp(`^${name} \\d`, 'm'));
  t.end();
});
