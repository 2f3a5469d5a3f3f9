import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { sourceRoot } from '../support/source-root.js';
import { select, tablesOf, withFigures } from './figures.js';
import { readPages } from './pages.js';

const read = (path: string): string => readFileSync(join(sourceRoot, path), 'utf8');

t.test('tables of figures are what the results say today (`make docs` writes them)', async (t) => {
  const pages = readPages().filter(({ text }) => text.includes('<!-- figures '));
  t.ok(pages.length >= 2);
  for (const { path, text } of pages) t.equal(text, await withFigures(text, read), path);
});

/** A number that a sentence gives, and the cell that it is of. The sentence has `#` in its place. */
const CLAIMS: readonly {
  readonly page: string;
  readonly sentence: string;
  readonly results: string;
  readonly column: string;
  readonly where: Readonly<Record<string, string>>;
}[] = [
  ...(['README.md', 'docs/sizing.md'] as const).map((page) => ({
    page,
    sentence: '# ms at the median',
    results: 'spool',
    column: 'p50 ms',
    where: { how: 'the spool', callers: '1' },
  })),
  ...(
    [
      ['# tokens a second with one reply running', '1', '1'],
      ['one reply running, # with 8', '1', '8'],
      ['with 8 and # with 32', '1', '32'],
    ] as const
  ).map(([sentence, threads, sequences]) => ({
    page: 'docs/sizing.md',
    sentence,
    results: 'engine-limit',
    column: 'ours, greedy',
    where: { model: '150m', threads, sequences },
  })),
  ...(
    [
      ['it keeps # of its own peak', 'ra-sidecar'],
      ['tuned to this very load, keep #', 'llama-server behind nginx limit_conn'],
    ] as const
  ).map(([sentence, server]) => ({
    page: 'docs/benchmarks.md',
    sentence,
    results: 'overload',
    column: server,
    where: {},
  })),
  {
    page: 'docs/benchmarks.md',
    sentence: 'takes # µs at the median with 256 seats',
    results: 'admission-operations',
    column: 'median, µs',
    where: { seats: '256', operation: 'release and seat the next' },
  },
  {
    page: 'docs/benchmarks.md',
    sentence: 'is missed for `enter` (# µs)',
    results: 'admission-operations',
    column: 'p99, µs',
    where: { seats: '256', operation: 'enter' },
  },
  {
    page: 'docs/benchmarks.md',
    sentence: 'outside clock at p99 (# ms at worst',
    results: 'server-timing',
    column: 'off p99 ms',
    where: { load: '8 callers for 2 seats of 5 ms' },
  },
  {
    page: 'docs/benchmarks.md',
    sentence: '1,000 requests a second (# ms)',
    results: 'server-timing',
    column: 'ra-admit p99 ms',
    where: { load: '1000/s by the clock' },
  },
  {
    page: 'docs/benchmarks.md',
    sentence: '`ra-admit` is # ms at p99',
    results: 'server-timing',
    column: 'ra-admit p99 ms',
    where: { load: '1000/s at random' },
  },
  {
    page: 'docs/benchmarks.md',
    sentence: 'refused within 5 ms at p99 (# ms at worst)',
    results: 'server-timing',
    column: 'p99 ms',
    where: { 'refused as': '`full`' },
  },
  ...(
    [
      ['one sequence of the model of 13 M has #,', '1'],
      [', eight # and 32', '8'],
      ['and 32 #, where', '32'],
    ] as const
  ).map(([sentence, sequences]) => ({
    page: 'docs/benchmarks.md',
    sentence,
    results: 'engine-limit-native',
    column: 'ratio, greedy',
    where: { model: '13m', threads: '1', sequences },
  })),
  ...(
    [
      ['32 callers of the larger model get # times its tokens a second', '150m', '64', 'closed, 32', 'ratio'],
      ['and eight # times', '150m', '64', 'closed, 8', 'ratio'],
      ['256 tokens a reply # to', '13m', '256', 'closed, 1', 'ours over our engine alone'],
      ['0.961 to #, where 0.95', '13m', '256', 'closed, 32', 'ours over our engine alone'],
      ['gives one caller # of what our engine makes alone', '13m', '64', 'closed, 1', 'ours over our engine alone'],
      ['makes alone, eight # and 32', '13m', '64', 'closed, 8', 'ours over our engine alone'],
      ['0.941 and 32 #;', '13m', '64', 'closed, 32', 'ours over our engine alone'],
      ['temperature 1 one caller #.', '13m', '64', 'closed, 1', 'ours over our engine alone', '1'],
    ] as const
  ).map(([sentence, model, tokens, load, column, temperature = '0']) => ({
    page: 'docs/benchmarks.md',
    sentence,
    results: 'llama-server-native',
    column,
    where: { model, 'tokens a reply': tokens, cores: 'any', load, temperature },
  })),
  {
    page: 'docs/benchmarks.md',
    sentence: 'over HTTP the larger model gives # or more of what',
    results: 'llama-server-native',
    column: 'ours over our engine alone',
    where: { model: '150m', cores: '0', load: 'closed, 8' },
  },
  ...(
    [
      ['short replies gives # tokens a second to eight', '0'],
      ['callers, # anywhere', 'any'],
    ] as const
  ).map(([sentence, cores]) => ({
    page: 'docs/benchmarks.md',
    sentence,
    results: 'llama-server-native',
    column: 'tokens/s, ours',
    where: { model: '13m', 'tokens a reply': '64', cores, load: 'closed, 8', temperature: '0' },
  })),
  ...(
    [
      ['the whole sidecar gets # to', '13m', '64', 'any', 'closed, 1', '1'],
      ['to # of the engine alone', '13m', '256', 'any', 'closed, 32', '0'],
      ['and # or more on a larger one', '150m', '64', '0', 'closed, 8', '0'],
    ] as const
  ).map(([sentence, model, tokens, cores, load, temperature]) => ({
    page: 'docs/architecture.md',
    sentence,
    results: 'llama-server-native',
    column: 'ours over our engine alone',
    where: { model, 'tokens a reply': tokens, cores, load, temperature },
  })),
  ...(
    [
      ["at the default of 50 the small model's p99 is # times", '13m', 'p99 beside over p50 undisturbed'],
      ["and the larger one's # times", '150m', 'p99 beside over p50 undisturbed'],
      ['tenth of the way, the p99 is # times', '150m', 'the same, each gap over the p50 of its tenth'],
    ] as const
  ).map(([sentence, model, column]) => ({
    page: 'docs/benchmarks.md',
    sentence,
    results: 'engine-prefill',
    column,
    where: { model, 'prefillShare %': '50' },
  })),
  {
    page: 'docs/benchmarks.md',
    sentence: 'Holds: # times as fast as asking one by one',
    results: 'decisions',
    column: 'times as fast as one by one',
    where: { how: 'ours, isolated: the input prefilled once' },
  },
];

t.test('figures in sentences are those of the results, rounded', async (t) => {
  for (const { page, sentence, results, column, where } of CLAIMS) {
    const prose = read(page).replace(/\s+/g, ' ');
    const pattern = sentence.split('#').map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
    const found = new RegExp(pattern.join('([\\d.,]+)')).exec(prose)?.[1]?.replace(/\.$|,/g, '');
    const value = results === 'overload' ? ofPeak(column) : cell(results, column, where);
    if (found === undefined) t.fail(`${page} says nowhere: ${sentence}`);
    else t.equal(found, rounded(value, found), `${page}: ${sentence}`);
  }
});

/** The sentence under the table of the overload bench. */
function ofPeak(server: string): number {
  const [, shares = ''] = /Of its own peak each keeps, [^:]*: (.*)\./.exec(read('bench/results/overload.md')) ?? [];
  return Number(
    shares
      .split(', ')
      .find((share) => share.replace(/ [\d.]+$/, '') === server)
      ?.slice(server.length),
  );
}

function cell(results: string, column: string, where: Readonly<Record<string, string>>): number {
  const wheres = Object.entries(where).map(([name, value]) => ({ column: name, values: [value] }));
  const table = select(tablesOf(read(`bench/results/${results}.md`)), [column], wheres);
  return Number(table?.rows[0]?.[0]?.replaceAll(',', ''));
}

/** With as many decimals as `like` has. */
function rounded(value: number, like: string): string {
  return value.toFixed(like.split('.')[1]?.length ?? 0);
}

t.test('a table is taken by its headings and rows', async (t) => {
  const results = 'x\n\n| a | b, c |\n| --- | ---: |\n| 1 | 2 |\n| 3 | 4 |\n\n| d |\n| - |\n| 5 |\n';
  const page = (rows: string): string =>
    `# T\n\n<!-- figures r.md\ncolumns: b, c\nwhere: a = 3 | 9\n-->\n${rows}\nText.\n`;
  const made = page('\n| b, c |\n| ---- |\n| 4    |\n');
  t.equal(await withFigures(page(''), () => results), made, 'filled in');
  t.equal(await withFigures(made, () => results), made, 'and left as it is');
  t.equal(await withFigures(page('\n| b, c |\n| - |\n| 7 |\n| 8 |\n'), () => results), made, 'or made anew');
  await t.rejects(
    withFigures(page('').replace('b, c', 'e'), () => results),
    /no table with e, a/,
  );
  await t.rejects(
    withFigures(page('').replace('3 | 9', '9'), () => results),
    /no such rows/,
  );
});
