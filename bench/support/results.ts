/** Results are kept beside the benches, with their machine and command: for people as Markdown, for tools as JSON. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { installedAddon } from './addon.js';
import { filesOf, runningBench } from './bench-files.js';
import { BUSY, countOwnWork, foreignCores } from './busy.js';
import { codeCommit } from './commit.js';
import { speedRange, unevenness } from './machine-speed.js';
import { processor } from './machine.js';
import { countedNoise, NoiseMeter } from './noise.js';
import { median, shown } from './stats.js';

/** From dist/bench/support. */
const RESULTS = new URL('../../../bench/results/', import.meta.url);

export type Row = Readonly<Record<string, number | string>>;

export interface Results {
  readonly title: string;
  /** What was done and what the columns mean, a paragraph each. */
  readonly about: readonly string[];
  /** Rows kept from an earlier run may lack some columns. */
  readonly rows: readonly Row[];
  /** The conclusions, a paragraph each. */
  readonly conclusions?: readonly string[];
  /** What was measured is not as it should be: the result is kept to be looked at, and the next round measures again. */
  readonly failed?: boolean;
  /** Figures of a simulation: other work of the machine does not change them. */
  readonly simulated?: boolean;
}

/** How long other work on the machine is measured before the bench begins, ms. */
const LOOK_MS = 1000;
/** Percent of the machine’s time that its host gave to others, from which on the figures are marked as rough. */
const ROBBED = 2;
/** How many times as slow as at its fastest the machine may have been, before the figures are marked as rough. */
const UNEVEN = 1.25;

const from = performance.now();

const bench = runningBench();

/** Before the bench, since files may be changed while it runs. */
const commit = bench === undefined ? codeCommit() : codeCommit(filesOf(bench));

/** Cores that were busy with other work just before the bench. */
const busyBefore = await foreignCores(LOOK_MS);

countOwnWork();
const noise = new NoiseMeter();

/** Writes `bench/results/<name>.md` and `.json`, and shows the table. */
export async function keep(
  name: string,
  { title, about, rows, conclusions = [], failed = false, simulated = false }: Results,
): Promise<void> {
  const noises = [noise.read(), countedNoise()];
  const [busyDuring, stolenPercent] = [
    most(noises.map(({ busy }) => busy)),
    most(noises.map(({ stolenPercent }) => stolenPercent)),
  ];
  const speeds = speedRange(noises.flatMap(({ speeds }) => speeds));
  const busy = Math.max(busyBefore, busyDuring ?? 0) > BUSY || (stolenPercent ?? 0) > ROBBED;
  const uneven = unevenness(speeds) > UNEVEN;
  const rough = (busy || uneven) && !simulated;
  const where = {
    commit,
    date: new Date().toISOString(),
    machine: processor(),
    node: process.version,
    addon: installedAddon(),
    command: ['node', `dist/${process.argv[1]?.split('/dist/')[1] ?? ''}`, ...process.argv.slice(2)].join(' '),
    busyBefore: Number(busyBefore.toFixed(2)),
    busyDuring: busyDuring === null ? null : Number(busyDuring.toFixed(2)),
    stolenPercent: stolenPercent === null ? null : Number(stolenPercent.toFixed(1)),
    ...speeds,
    rough,
    ...(failed && { failed }),
    seconds: Math.round((performance.now() - from) / 1000),
  };
  const table = markdown(rows);
  const facts = `Commit ${commit}; ${where.machine}; Node ${where.node}, ${where.addon} addon; ${where.date}; cores busy with other work before: ${where.busyBefore}, meanwhile: ${where.busyDuring ?? 'not known'}; time that the machine's host took: ${where.stolenPercent === null ? 'not known' : `${where.stolenPercent} %`}; the same work, before and after: ${inMs(speeds.arithmeticMs)} of arithmetic, ${inMs(speeds.copyMs)} of copies in memory.`;
  const why = busy ? 'was busy with other work, or its host was' : 'was not equally fast before and after';
  const warning = rough ? [`**The machine ${why}: the figures are rough.**`] : [];
  const text = [
    `# ${title}`,
    ...warning,
    ...about,
    table,
    ...conclusions,
    `${facts} Command: \`${where.command}\``,
  ].join('\n\n');
  await keepFile(`${name}.md`, `${text}\n`);
  await keepFile(`${name}.json`, lines({ title, ...where }, { rows, conclusions }));
  process.stdout.write(`${table}\n${conclusions.join('\n')}\n`);
}

/** JSON with a line for each fact and for each element of the lists, so that a changed row is a changed line. */
function lines(facts: object, lists: Readonly<Record<string, readonly unknown[]>>): string {
  const list = ([name, all]: [string, readonly unknown[]]): string =>
    `  ${JSON.stringify(name)}: [${all.map((each) => `\n    ${JSON.stringify(each)}`).join(',')}${all.length === 0 ? '' : '\n  '}]`;
  const fields = Object.entries(facts).map(([name, value]) => `  ${JSON.stringify(name)}: ${JSON.stringify(value)}`);
  return `{\n${[...fields, ...Object.entries(lists).map(list)].join(',\n')}\n}\n`;
}

function inMs([least, most]: readonly [number, number]): string {
  return least === most ? `${least} ms` : `${least} to ${most} ms`;
}

/** The largest that is known; null: none is. */
function most(values: readonly (number | null)[]): number | null {
  const known = values.filter((value) => value !== null);
  return known.length === 0 ? null : Math.max(...known);
}

/** The rows of the bench’s last run; none before the first. */
export async function keptRows(name: string): Promise<readonly Row[]> {
  const text = await readFile(new URL(`${name}.json`, RESULTS), 'utf8').catch(() => '{"rows":[]}');
  return (JSON.parse(text) as Results).rows;
}

/**
 * The rows that `make` measures of each model. If the bench is started for one model alone, which is its argument `only`, the rows of the
 * others stay as its last run kept them under `name`.
 */
export async function rowsByModel<Model extends string>(
  name: string,
  models: readonly Model[],
  only: string | undefined,
  make: (model: Model) => Promise<readonly Row[]>,
): Promise<Row[]> {
  const rows: Row[] = [];
  for (const model of models) {
    if (only === undefined || only === model) rows.push(...(await make(model)));
    else rows.push(...(await keptRows(name)).filter((row) => row['model'] === model));
  }
  return rows;
}

/** Writes `bench/results/<name>`. */
export async function keepFile(name: string, text: string): Promise<void> {
  await mkdir(RESULTS, { recursive: true });
  await writeFile(fileURLToPath(new URL(name, RESULTS)), text);
}

/** The median of each column of numbers; the first row’s texts. */
export function medians(rows: readonly Row[]): Row {
  const [first = {}] = rows;
  return Object.fromEntries(
    Object.entries(first).map(([name, value]) => [
      name,
      typeof value === 'number' ? median(rows.map((each) => Number(each[name]))) : value,
    ]),
  );
}

/** A table; a cell is empty if a row lacks the column. */
export function markdown(rows: readonly Row[]): string {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  const body = rows.map((row) =>
    line(
      columns.map((column) => {
        const value = row[column] ?? '';
        return typeof value === 'number' ? shown(value) : value;
      }),
    ),
  );
  return [line(columns), line(columns.map(() => '---')), ...body].join('\n');
}
