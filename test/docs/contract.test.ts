/** docs/contract.md compared with the code: its error table. */
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
