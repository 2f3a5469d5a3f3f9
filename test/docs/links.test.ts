import t from 'tap';
import { sourceRoot } from '../support/source-root.js';
import { brokenLinks } from './links.js';
import { brokenMentions, commentsOf, readComments, readMessages } from './mentions.js';
import { parsePage, readBenchPages, readPages, readResultPages } from './pages.js';

t.test('every link, anchor and path of the documentation exists', async (t) => {
  const pages = readPages();
  t.ok(pages.length > 20 && pages.flatMap(({ links }) => links).length > 100, 'the pages were read');
  const benches = readBenchPages();
  t.ok(benches.length > 1, 'and those of the benches');
  const results = readResultPages();
  t.ok(results.length > 50, 'and the results');
  t.strictSame(brokenLinks([...pages, ...benches, ...results], sourceRoot), []);
});

t.test('every page, heading and source file that comments name exists', async (t) => {
  const sources = readComments(sourceRoot);
  t.ok(sources.length > 500, 'the sources were read');
  t.strictSame(brokenMentions(sources, readPages(), sourceRoot), []);
});

t.test('every page and heading that messages and help texts name exists, by its path', async (t) => {
  const messages = readMessages(sourceRoot);
  const pages = messages.flatMap(({ lines }) => lines.flatMap((line) => line.match(/[\w/-]+\.md\b/g) ?? []));
  t.ok(pages.length > 15, `${pages.length} are named`);
  const broken = brokenMentions(messages, readPages(), sourceRoot);
  t.strictSame(
    broken.filter((one) => / (?:page|heading)\b/.test(one)),
    [],
  );
});

t.test('every page is reachable from docs/README.md', async (t) => {
  const pages = readPages();
  const map = pages.find(({ path }) => path === 'docs/README.md');
  const named = new Set(map?.links.map(({ target }) => target.split('#')[0]));
  const missing = pages
    .map(({ path }) => path)
    .filter((path) => /^docs\/[^/]+\.md$/.test(path) && path !== 'docs/README.md')
    .filter((path) => !named.has(path.slice('docs/'.length)));
  t.strictSame(missing, []);
});

t.test('broken links are found', async (t) => {
  const page = parsePage(
    'docs/page.md',
    [
      '# A `page`: of [links](x.md)',
      '[good](../README.md) [here](#a-page-of-links) [far](https://example.org/a) [file](../package.json)',
      '[`code`](none.md) [a](#nowhere) [b](../README.md#nowhere) ![c](none.svg) [d](../../x.md)',
      '`docs/none.md` `docs/` `bench/.cache/peers` `sidecar`',
      '```sh',
      '[in a block](none.md) `docs/none.md`',
      '```',
      '[defined]: none2.md',
      '## Twice',
      '## Twice',
      '[second](#twice-1)',
    ].join('\n'),
  );
  const readme = parsePage('README.md', '# Title');
  t.strictSame(brokenLinks([page, readme], sourceRoot), [
    'docs/page.md:1: x.md: no such file',
    'docs/page.md:3: none.md: no such file',
    'docs/page.md:3: #nowhere: no such heading',
    'docs/page.md:3: ../README.md#nowhere: no such heading',
    'docs/page.md:3: none.svg: no such file',
    'docs/page.md:3: ../../x.md: outside of the repository',
    'docs/page.md:8: none2.md: no such file',
    'docs/page.md:4: docs/none.md: no such path',
  ]);
});

t.test('broken names in comments are found', async (t) => {
  const text = [
    '/** docs/README.md, README.md, links.ts, docs/links.ts, test/docs/links.ts, *.none.ts */',
    "const name = 'docs/none.md';",
    ['code();', '// docs/none.md and none.ts'].join(' '),
    '/*',
    ' * docs/page.md, elsewhere/links.ts, page.md, https://example.org/none.md',
    ' */',
    '// dist/test/docs/links.js dist/test/docs/none.js # none.ts',
    ['# none.md', '* none.md'].join(' '),
    "const other = 'none.ts';",
  ].join('\n');
  const source = commentsOf('test/x.ts', text);
  t.strictSame(brokenMentions([source], [], sourceRoot), [
    'test/x.ts:3: docs/none.md: no such page from the repository’s root',
    'test/x.ts:3: none.ts: no such source file',
    'test/x.ts:5: docs/page.md: no such page from the repository’s root',
    'test/x.ts:5: elsewhere/links.ts: no such source file',
    'test/x.ts:5: page.md: no such page from the repository’s root',
    'test/x.ts:7: dist/test/docs/none.js: built from no source file',
    'test/x.ts:7: none.ts: no such source file',
  ]);
  const anchored = commentsOf('test/x.py', '# docs/README.md#callers docs/README.md#nowhere');
  t.strictSame(brokenMentions([anchored], readPages(), sourceRoot), [
    'test/x.py:1: docs/README.md#nowhere: no such heading',
  ]);
});
