import t from 'tap';
import { sourceRoot } from '../support/source-root.js';
import { brokenLinks } from './links.js';
import { brokenMentions, readComments, readMessages } from './mentions.js';
import { readBenchPages, readPages, readResultPages } from './pages.js';

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
