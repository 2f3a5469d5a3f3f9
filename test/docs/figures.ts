/**
 * Tables of figures that pages take from bench/results. A comment says which; the table behind it is made by `make docs`:
 *
 *     <!-- figures bench/results/spool.md
 *     columns: how | callers | p50 ms
 *     where: callers = 1 | 64
 *     -->
 *
 * `columns` are headings of one table there, `where` keeps the rows whose cell is one of the values; it may come several times.
 */
import { format, resolveConfig } from 'prettier';

/** Texts of results files by their path from the repository’s root. */
export type ReadResults = (path: string) => string;

export interface Table {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

const MARK = /<!-- figures (\S+)\n([\s\S]*?)-->\n(?:\n\|[^\n]*(?:\n\|[^\n]*)*\n)?/g;

/** The page with its tables filled from the results. Throws if a comment names a table or row that does not exist. */
export async function withFigures(text: string, read: ReadResults): Promise<string> {
  const marks = text.split('<!-- figures ').length - 1;
  if (marks === 0) return text;
  if ([...text.matchAll(MARK)].length !== marks) throw new Error('a comment lacks the line break after its path');
  const filled = text.replace(MARK, (_, path: string, wish: string) => {
    const lines = wish.trim().split('\n');
    const columns = lines.flatMap((line) => valuesOf(line, 'columns: '));
    const wheres = lines.filter((line) => line.startsWith('where: ')).map(whereOf);
    const table = select(tablesOf(read(path)), columns, wheres);
    if (!table)
      throw new Error(`${path} has no table with ${[...columns, ...wheres.map(({ column }) => column)].join(', ')}`);
    if (table.rows.length === 0) throw new Error(`${path} has no such rows: ${wish}`);
    const row = (cells: readonly string[]): string => `| ${cells.join(' | ')} |\n`;
    const body = row(columns) + row(columns.map(() => '---')) + table.rows.map(row).join('');
    return `<!-- figures ${path}\n${wish}-->\n\n${body}`;
  });
  return await format(filled, { ...(await resolveConfig(`${import.meta.dirname}/x.md`)), parser: 'markdown' });
}

interface Where {
  readonly column: string;
  readonly values: readonly string[];
}

function whereOf(line: string): Where {
  const [column = '', values = ''] = line.slice('where: '.length).split(' = ');
  return { column, values: values.split(' | ') };
}

function valuesOf(line: string, name: string): string[] {
  return line.startsWith(name) ? line.slice(name.length).split(' | ') : [];
}

/** All tables of a text, cells trimmed. */
export function tablesOf(text: string): Table[] {
  const tables: Table[] = [];
  const groups = text.split('\n').reduce<string[][]>(
    (all, line) => {
      if (line.startsWith('|')) all.at(-1)?.push(line);
      else if (all.at(-1)?.length !== 0) all.push([]);
      return all;
    },
    [[]],
  );
  for (const [head = '', rule = '', ...rows] of groups) {
    if (/^\|[-| :]+\|$/.test(rule)) tables.push({ columns: cellsOf(head), rows: rows.map(cellsOf) });
  }
  return tables;
}

function cellsOf(line: string): string[] {
  return line
    .slice(1, line.lastIndexOf('|'))
    .split('|')
    .map((cell) => cell.trim());
}

/** Of the first table that has all the columns: these columns of the matching rows. */
export function select(
  tables: readonly Table[],
  columns: readonly string[],
  wheres: readonly Where[],
): Table | undefined {
  const wanted = [...columns, ...wheres.map(({ column }) => column)];
  const table = tables.find((each) => wanted.every((column) => each.columns.includes(column)));
  if (!table) return undefined;
  const cell = (row: readonly string[], column: string): string => row[table.columns.indexOf(column)] ?? '';
  const rows = table.rows
    .filter((row) => wheres.every(({ column, values }) => values.includes(cell(row, column))))
    .map((row) => columns.map((column) => cell(row, column)));
  return { columns, rows };
}
