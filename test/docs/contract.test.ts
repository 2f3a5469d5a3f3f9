/** docs/contract.md compared with the code: its error table and its order of checks. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { CATALOGUE, type CatalogueRow } from '../../sidecar/domain/errors.js';
import { sourceRoot } from '../support/source-root.js';
import { select, tablesOf } from './figures.js';

const read = (path: string): string => readFileSync(join(sourceRoot, path), 'utf8');
const page = read('docs/contract.md');

/** The text under a heading, up to the next one of any level. */
function section(heading: string): string {
  const [, text] = page.split(`\n### ${heading}\n`);
  if (text === undefined) throw new Error(`docs/contract.md has no heading ${heading}`);
  return text.split(/^#{1,6} /m)[0] ?? '';
}

/** Without the marks of a code span. */
const bare = (cell = ''): string => cell.replaceAll('`', '');

t.test('the page’s error table equals the catalogue: codes, statuses and types', async (t) => {
  const table = select(tablesOf(section('Error table')), ['code', 'status', 'type'], []);
  const onPage = (table?.rows ?? []).map(([code, status, type]) => [bare(code), status, type]);
  const inCode = Object.entries<CatalogueRow>(CATALOGUE).map(([code, { status, also = [], type }]) => [
    code,
    [status, ...also].join(', '),
    type,
  ]);
  t.strictSame(onPage.sort(), inCode.sort());
});

t.test('the page’s error types equal the catalogue’s', async (t) => {
  const table = select(
    tablesOf(section('Error object')),
    ['field', 'bounds'],
    [{ column: 'field', values: ['`type`'] }],
  );
  const onPage = bare(table?.rows[0]?.[1]).split(', ');
  t.strictSame(new Set(onPage), new Set(Object.values(CATALOGUE).map(({ type }) => type)));
});

/** How test/contract/order.test.ts names a check in its pairs, where the page uses another name. */
const OTHER_NAMES: Readonly<Record<string, string>> = {
  'the key’s own limits': 'per-key limits',
  'malformed key': 'idempotency',
  'token bound of the prompt': 'token bounds',
  'token bound of the reply': 'token bounds',
};

/** It follows all checks: requests are refused without waiting for it. */
const SEAT = 'a seat';

/** The pairs `earlier, later` that the order test asserts, in the page's names. */
function assertedPairs(): [earlier: string, later: string][] {
  const titles = read('test/contract/order.test.ts').matchAll(/\bis\(\s*(?:at\(\s*)?(['"`])((?:(?!\1).)+)\1/g);
  return [...titles].map(([, , title = '']) => {
    const [earlier = '', later = ''] = title
      .replace(/(?:: .*| at \$\{path\})$/, '')
      .replaceAll("'", '’')
      .split(', ')
      .map((name) => OTHER_NAMES[name] ?? name);
    return [earlier, later];
  });
}

t.test('the page’s order of checks is the one that the order test asserts', async (t) => {
  const checks = [...section('Order of checks').matchAll(/^\d+\. \*\*(.+?)\*\*/gm)].map(([, name = '']) => name);
  const pairs = assertedPairs();
  t.ok(checks.length > 10 && pairs.length > 40, 'page and test were read');
  const places = new Map([...checks, SEAT].map((name, place) => [name, place]));
  t.strictSame(
    pairs.filter(([earlier, later]) => !((places.get(earlier) ?? NaN) < (places.get(later) ?? NaN))),
    [],
    'every asserted pair is on the page, in this order',
  );
  const asserted = new Set(pairs.map((pair) => pair.join(', ')));
  const neighbours = checks.slice(1).map((later, at) => `${checks[at] ?? ''}, ${later}`);
  t.strictSame(
    neighbours.filter((pair) => !asserted.has(pair)),
    // Asserted by test/contract/billing.test.ts.
    ['token bounds, credit'],
    'each check is asserted to precede the next one',
  );
});
