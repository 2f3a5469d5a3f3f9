import t from 'tap';
import { sourceRoot } from '../support/source-root.js';
import { brokenLinks } from './links.js';
import { parsePage, readPages } from './pages.js';

t.test('every link, anchor and path of the documentation leads somewhere', async (t) => {
  const pages = readPages();
  t.ok(pages.length > 20 && pages.flatMap(({ links }) => links).length > 100, 'the pages were read');
  t.strictSame(brokenLinks(pages, sourceRoot), []);
});

t.test('every page is found from the map', async (t) => {
  const pages = readPages();
  const map = pages.find(({ path }) => path === 'docs/README.md');
  const named = new Set(map?.links.map(({ target }) => target.split('#')[0]));
  const missing = pages
    .map(({ path }) => path)
    .filter((path) => /^docs\/[^/]+\.md$/.test(path) && path !== 'docs/README.md')
    .filter((path) => !named.has(path.slice('docs/'.length)));
  t.strictSame(missing, []);
});

t.test('what leads nowhere is found', async (t) => {
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
