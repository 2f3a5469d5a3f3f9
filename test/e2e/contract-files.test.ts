/** The lists of llama-server-contract.e2e.ts, which only `make e2e` runs, name what is there. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { sourceRoot } from '../support/source-root.js';
import { NO_MODEL, RUN, SCRIPTED } from './contract-files.js';

t.test('each file of the contract is known to run against a llama-server or not to', (t) => {
  const files = readdirSync(join(sourceRoot, 'test/contract')).flatMap(
    (name) => /^(.*)\.test\.ts$/.exec(name)?.[1] ?? [],
  );
  const run = Object.keys(RUN).flatMap((name) => /^contract\/(.*)$/.exec(name)?.[1] ?? []);
  t.strictSame(files.sort(), [...run, ...SCRIPTED, ...NO_MODEL].sort());
  t.end();
});

t.test('each test that differs there has its title', (t) => {
  for (const [file, titles] of Object.entries(RUN)) {
    const source = readFileSync(join(sourceRoot, `test/${file}.test.ts`), 'utf8');
    t.strictSame(
      titles.filter((title) => !source.includes(`t.test('${title}'`)),
      [],
      file,
    );
  }
  t.end();
});
