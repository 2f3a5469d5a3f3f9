/** The page’s own files: all of them are served, and none asks another origin. `make build` checks their types. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { PAGE_FILES } from '../../../sidecar/console/console.js';
import { sourceRoot } from '../../support/source-root.js';

const FOLDER = join(sourceRoot, 'sidecar/console/page');
const names = readdirSync(FOLDER).filter((name) => name !== 'tsconfig.json');
const textOf = (name: string): string => readFileSync(join(FOLDER, name), 'utf8');
/** `/console` is the page itself, whose files are named `console/…` beside it. */
const served = new Map(Object.entries(PAGE_FILES).map(([path, name]) => [name, path]));

t.test('each file is served, and each named file exists', async (t) => {
  t.strictSame([...served.keys()].sort(), [...names].sort());
  for (const [, named = ''] of textOf('index.html').matchAll(/(?:src|href)="([^"#][^"]*)"/g))
    t.ok([...served.values()].includes(`/${named}`), named);
  for (const name of names.filter((each) => each.endsWith('.js'))) {
    for (const [, from = ''] of textOf(name).matchAll(/from '\.\/([^']+)'/g))
      t.equal(served.get(from), `/console/${from}`, `${name} imports ${from}`);
  }
});

t.test('it sends no request to another origin, and no text becomes markup', async (t) => {
  for (const name of names) {
    const text = textOf(name).replaceAll('http://www.w3.org/2000/svg', '');
    t.notMatch(text, /https?:|url\(|@import/, `${name} names no other origin`);
    t.notMatch(text, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function/, name);
  }
  const html = textOf('index.html');
  t.notMatch(
    html,
    /<style|style=|<script(?![^>]*src=)|\son\w+=/,
    'no inline script or style, which its policy would block',
  );
});

t.test('no file is too long', async (t) => {
  for (const name of names) t.ok(textOf(name).split('\n').length <= 300, name);
});
