/** docs/clients.md names the clients and versions that test/e2e/clients has in its lock. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { sourceRoot } from '../support/source-root.js';

const read = (path: string): string => readFileSync(join(sourceRoot, path), 'utf8');

/** Packages that clients depend on and that are no clients. */
const HELPERS = ['@langchain/core', '@langchain/langgraph', '@llamaindex/core', 'zod'];

t.test('every client of the lock file is in the table with its version', (t) => {
  const { dependencies } = JSON.parse(read('test/e2e/clients/package.json')) as {
    dependencies: Readonly<Record<string, string>>;
  };
  const cells = read('docs/clients.md')
    .split('\n')
    .filter((line) => line.startsWith('| '))
    .map((line) => line.split('|')[1]?.trim() ?? '');
  for (const [alias, wanted] of Object.entries(dependencies)) {
    const [, name = alias, version = wanted] = /^npm:(.+)@(.+)$/.exec(wanted) ?? [];
    if (HELPERS.includes(name)) continue;
    // The name must be complete: `openai` is a part of `@langchain/openai`.
    const named = cells.filter((cell) => cell.split(/[ ,()]+/).includes(name));
    const versions = named.flatMap((cell) => cell.match(/(?<=[ (])\d+(?:\.\d+)*/g) ?? []);
    t.ok(
      versions.some((each) => `${version}.`.startsWith(`${each}.`)),
      `${name} ${version}`,
    );
  }
  t.end();
});
