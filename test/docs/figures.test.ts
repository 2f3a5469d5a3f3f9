import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { sourceRoot } from '../support/source-root.js';
import { FIGURES, type FigureSource } from './figure-sources.js';
import { select, tablesOf, withFigures } from './figures.js';
import { readPages } from './pages.js';

const read = (path: string): string => readFileSync(join(sourceRoot, path), 'utf8');

t.test('tables of figures equal the results (`make docs` writes them)', async (t) => {
  const pages = readPages().filter(({ text }) => text.includes('<!-- figures '));
  t.ok(pages.length > 0);
  for (const { path, text } of pages) t.equal(text, await withFigures(text, read), path);
});

/** `0.179<!-- figure spool-p50 -->`: a number and the name of its source. */
const MARKED = /([\d.,]*\d)<!-- figure ([\w-]+) -->/g;

t.test('marked figures in sentences equal the results, rounded', async (t) => {
  const marked = readPages().flatMap(({ path, text }) =>
    [...text.matchAll(MARKED)].map(([, figure = '', name = '']) => ({
      path,
      name,
      figure: figure.replaceAll(',', ''),
    })),
  );
  for (const { path, name, figure } of marked) {
    const source = FIGURES[name];
    if (source === undefined) t.fail(`${path}: no source is named ${name}`);
    else t.equal(figure, rounded(valueOf(source), figure), `${path}: ${name}`);
  }
  t.strictSame(new Set(marked.map(({ name }) => name)), new Set(Object.keys(FIGURES)), 'each source is used');
});

function valueOf({ results, column, where, peakOver }: FigureSource): number {
  if (peakOver === undefined) return cell(results, column, where);
  const others = Object.entries(where).filter(([name]) => name !== peakOver);
  return cell(results, column, where) / Math.max(...cells(results, column, Object.fromEntries(others)));
}

function cell(results: string, column: string, where: Readonly<Record<string, string>>): number {
  return cells(results, column, where)[0] ?? NaN;
}

function cells(results: string, column: string, where: Readonly<Record<string, string>>): number[] {
  const wheres = Object.entries(where).map(([name, value]) => ({ column: name, values: [value] }));
  const table = select(tablesOf(read(`bench/results/${results}.md`)), [column], wheres);
  return (table?.rows ?? []).map(([text = '']) => Number(text.replaceAll(',', '')));
}

/** With as many decimals as `like` has. */
function rounded(value: number, like: string): string {
  return value.toFixed(like.split('.')[1]?.length ?? 0);
}
