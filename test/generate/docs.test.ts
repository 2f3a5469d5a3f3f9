import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';
import { apiDocs } from './api-docs.js';
import { configDocs } from './config-docs.js';
import { withDifferences } from './difference-docs.js';
import { errorDocs } from './error-docs.js';
import { metricDocs } from './metric-docs.js';
import { operatorsOpenApiText } from './operators-openapi.js';
import { readGoldens } from '../goldens/hashes.js';
import { readPages, type Page } from '../docs/pages.js';
import { resultsPage } from './results-page.js';
import { componentSchemas } from '../../sidecar/api/openapi/schemas.js';
import { ROUTES } from '../../sidecar/api/public-routes.js';
import { sourceRoot } from '../support/source-root.js';

/** A quarter of an hour. */
const PAGE_WORDS = 2500;

/** Results of earlier benches have no commit. */
const COMMITS_SINCE = '2026-11-25T04:00';

t.test('the generated pages equal what the code generates (`make docs` writes them)', async (t) => {
  t.equal(readFileSync(`${sourceRoot}/docs/errors.md`, 'utf8'), errorDocs());
  for (const [page, text] of Object.entries({ ...apiDocs(), ...configDocs(), ...metricDocs() }))
    t.equal(readFileSync(`${sourceRoot}/docs/${page}`, 'utf8'), text, page);
  t.equal(readFileSync(`${sourceRoot}/docs/operators-openapi.json`, 'utf8'), operatorsOpenApiText());
  t.equal(readFileSync(`${sourceRoot}/bench/results/README.md`, 'utf8'), resultsPage());
});

t.test('no page has more words than a reader takes in at once', async (t) => {
  const words = ({ path }: Page): number =>
    readFileSync(`${sourceRoot}/${path}`, 'utf8').match(/\S*[\p{L}\p{N}]\S*/gu)?.length ?? 0;
  const pages = readPages().filter(({ path }) => path.startsWith('docs/'));
  t.ok(pages.length > 30);
  t.strictSame(
    pages.filter((page) => words(page) > PAGE_WORDS).map(({ path }) => path),
    [],
  );
});

t.test('the page of the goldens has their differences', async (t) => {
  const page = readFileSync(`${sourceRoot}/test/goldens/README.md`, 'utf8');
  const { templates } = await readGoldens();
  // The page's table is aligned.
  const cells = (text: string): string => text.replaceAll(/[\s-]+/g, ' ');
  t.equal(cells(page), cells(withDifferences(page, Object.keys(templates).length)));
});

t.test('a result names its commit', async (t) => {
  const names = readdirSync(`${sourceRoot}/bench/results`).filter((file) => file.endsWith('.json'));
  const without = names.filter((file) => {
    const { commit, date } = JSON.parse(readFileSync(`${sourceRoot}/bench/results/${file}`, 'utf8')) as {
      commit?: string;
      date: string;
    };
    return date > COMMITS_SINCE && !/^[0-9a-f]{7}/.test(commit ?? '');
  });
  t.strictSame(without, []);
});

t.test('a page of another command names a commit too', async (t) => {
  const files = readdirSync(`${sourceRoot}/bench/results`);
  const pages = files.filter((file) => file.endsWith('.md') && !files.includes(file.replace(/md$/, 'json')));
  t.ok(pages.length > 5);
  for (const file of pages)
    t.match(readFileSync(`${sourceRoot}/bench/results/${file}`, 'utf8'), /\b[0-9a-f]{7,8}\b/, file);
});

t.test('the pages of the API have every route and shape', async (t) => {
  const text = Object.values(apiDocs()).join('\n');
  const anchors = new Set([...text.matchAll(/^#+ (.*)$/gm)].map(([, title = '']) => anchorOf(title)));
  for (const { reference } of ROUTES) {
    const { method, path } = reference;
    t.ok(anchors.has(anchorOf(`${method} ${path}`)), path);
  }
  for (const name of Object.keys(componentSchemas())) t.ok(anchors.has(name.toLowerCase()), name);
});

function anchorOf(title: string): string {
  return title
    .toLowerCase()
    .replaceAll(' ', '-')
    .replace(/[^\w-]/g, '');
}
