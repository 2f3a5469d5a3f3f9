import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { sourceRoot } from '../support/source-root.js';
import { tablesOf } from './figures.js';

const OURS = 'ra-sidecar';
/** With each footnote on one line. */
const page = readFileSync(join(sourceRoot, 'docs/comparison.md'), 'utf8').replace(/\n+ {4}/g, ' ');
const sources = new Map([...page.matchAll(/^\[\^([\w-]+)\]: (.*)$/gm)].map(([, name = '', text = '']) => [name, text]));

/** For each heading, how the names of its sources begin: a claim about one server needs a source of that server. */
const INITIALS: Readonly<Record<string, string>> = {
  'llama-server': 'l-',
  vLLM: 'v-',
  Ollama: 'o-',
  'llama-swap': 's-',
};

t.test('each claim about another server names a source of that server', async (t) => {
  const tables = tablesOf(page).filter(({ columns }) => columns.includes(OURS));
  t.equal(tables.length, 3);
  for (const { columns, rows } of tables) {
    t.strictSame(columns.slice(2), Object.keys(INITIALS));
    for (const [what = '', ours = '', ...others] of rows) {
      t.ok(ours.length > 0, `${what}: our column`);
      for (const [at, claim] of others.entries()) {
        const server = columns[at + 2] ?? '';
        const names = [...claim.matchAll(/\[\^([\w-]+)\]/g)].map(([, name = '']) => name);
        t.ok(names.length > 0, `${what}, ${server}: a source`);
        for (const name of names)
          t.ok(name.startsWith(INITIALS[server] ?? '?'), `${what}, ${server}: ${name} is a source of that server`);
      }
    }
  }
});

t.test('each source has an address and is used; the page gives the date', async (t) => {
  t.ok(sources.size > 20);
  const text = page.replace(/^\[\^[\w-]+\]: .*$/gm, '');
  const used = new Set([...text.matchAll(/\[\^([\w-]+)\]/g)].map(([, name = '']) => name));
  t.strictSame([...used].sort(), [...sources.keys()].sort());
  for (const [name, source] of sources) t.match(source, /<https:\/\/[^\s>]+>/, name);
  t.match(page, /\d{1,2} [A-Z][a-z]+ 20\d\d<!-- date of the sources -->/);
});
