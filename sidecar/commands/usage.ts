/** `ra-sidecar usage`: reads the spool of usage records, also beside the sidecar that writes it. */
import { statSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { spoolDir } from '../app/usage.js';
import { priceFileOf, type Config } from '../config/config.js';
import type { UsageRecord } from '../domain/usage-record.js';
import { exactTime, systemClock } from '../lib/clock.js';
import { DAY_MS, FOCUS_COLUMNS, focusRows, startOf } from '../usage/focus.js';
import { lockOwner } from '../usage/lock.js';
import { BUILT_IN_PRICES, parsePrices, readPriceFile, type PriceList } from '../usage/prices.js';
import { oldestPosition, readFrom, verify, type SpoolFault } from '../usage/reader.js';
import { START, type Position } from '../usage/spool-format.js';
import { isHour, periodsOf, totalsDir, type TotalsRow } from '../usage/totals-files.js';
import { MOST_DAYS, Totals } from '../usage/totals.js';
import { EXIT, failedWith, runOf, UsageError, type Values } from './command.js';
import { COMMANDS } from './command-table.js';

type ExportValues = Values<typeof COMMANDS.usage.commands.export.options>;

/** Error codes of a stream whose reader has closed it. */
const READER_CLOSED: ReadonlySet<string> = new Set(['EPIPE', 'ERR_STREAM_PREMATURE_CLOSE', 'ERR_STREAM_DESTROYED']);

/** Days and times with a zone; a day starts at midnight UTC. A time without a zone would differ between machines. */
const TIME = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d))?$/;

type Column = readonly [name: string, value: (record: UsageRecord) => string | number | undefined];

const FIELDS = ['id', 'requestId', 'at', 'account', 'keyId', 'model', 'route'] as const;
const COUNTS = ['promptTokens', 'cachedTokens', 'completionTokens'] as const;

const COLUMNS: readonly Column[] = [
  ...[...FIELDS, ...COUNTS].map((name): Column => [name, (record) => record[name]]),
  ['priceVersion', ({ price }) => price?.version],
  ['picodollars', ({ price }) => price?.picodollars],
  ['outcome', ({ outcome }) => outcome],
  ['estimated', ({ estimated }) => (estimated ? 'true' : '')],
  ['tier', ({ tier }) => tier],
];

interface UsageStreams {
  readonly out: Writable;
  readonly err: (text: string) => void;
}

/** `ra-sidecar usage verify|export`. Resolves with the exit code; rejects where no sidecar has ever had a spool, or if the disk fails. */
export function usage(
  config: Pick<Config, 'dataDir' | 'pricing' | 'models' | 'store'>,
  args: readonly string[],
  streams: UsageStreams,
): Promise<number> {
  const dir = spoolDir(config);
  return runOf('usage', COMMANDS.usage, args, {
    verify: ({ values }) => report(dir, values.json === true, streams.out),
    export: async ({ values }) => {
      const options = exportOptions(values);
      if (values.fleet === true) {
        if (options.format !== 'focus')
          throw new UsageError('usage export: the store has sums alone: --fleet needs --format focus');
        if ([options.from, options.to].some((time) => Number.isFinite(time) && time % DAY_MS !== 0))
          throw new UsageError('usage export: the store has sums of days: --fleet needs days as --from and --to');
        const [{ usageOn, withDatabase }, { readDocument }] = await Promise.all([
          import('./store.js'),
          import('../store/keys.js'),
        ]);
        return await withDatabase(config.store, async (database) => {
          const sums = fleetSums((day) => usageOn(database, day, options.account));
          if (config.pricing.source !== 'store')
            return await exportFocus(sums, await pricesOf(config), options, streams);
          const kept = await readDocument(database, 'prices');
          const prices = kept ? parsePrices(kept, 'the store', config.models, Date.now()) : BUILT_IN_PRICES;
          return await exportFocus(sums, prices, options, streams);
        });
      }
      needSpool(dir);
      return options.format === 'focus'
        ? await exportFocus(await spoolSums(dir), await pricesOf(config), options, streams)
        : await exportCloses(dir, options, streams);
    },
  });
}

function needSpool(dir: string): void {
  if (statSync(dir, { throwIfNoEntry: false })) return;
  throw new Error(`there is no usage spool at ${dir}: run this with the service's settings (RA_CONFIG, RA_DATA_DIR)`);
}

/** Resolves once all is written, since the process ends afterwards. Rejects if it cannot be. */
function written(out: Writable, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    out.write(text, (error) => {
      if (error) reject(error);
      else resolve();
    });
  });
}

async function report(dir: string, json: boolean, out: Writable): Promise<number> {
  needSpool(dir);
  const verified = await verify(dir, (await lockOwner(dir)) !== undefined);
  await written(out, json ? `${JSON.stringify(verified)}\n` : text(dir, verified));
  return verified.findings.length === 0 ? EXIT.done : EXIT.failed;
}

function text(dir: string, { segments, records, findings }: Awaited<ReturnType<typeof verify>>): string {
  const lines = findings.map((finding) => `segment ${finding.segment}: ${sentence(finding)}`);
  const sum = `${dir}: ${segments} segments, ${records} records, ${findings.length === 0 ? 'no damage' : `${findings.length} findings`}`;
  return [...lines, sum, ''].join('\n');
}

function sentence(finding: SpoolFault): string {
  switch (finding.kind) {
    case 'damage':
      return `${finding.bytes} bytes from offset ${finding.offset} are damaged or missing`;
    case 'missing':
      return 'is missing';
    case 'unfinished':
      return `the spool was not closed: it stops at offset ${finding.offset} with ${finding.bytes} bytes of a line; the next start repairs that`;
  }
}

/** Writes the `close` records of the spool, at the speed of the reader of `out`. */
async function exportCloses(dir: string, options: ExportOptions, { out, err: say }: UsageStreams): Promise<number> {
  let damaged = 0;
  const lines = async function* (): AsyncGenerator<string> {
    if (options.format === 'csv') yield `${COLUMNS.map(([name]) => name).join()}\n`;
    for await (const read of readFrom(dir, START)) {
      if (read.kind === 'damage') damaged += 1;
      else if (isWanted(read.record, options)) {
        yield `${options.format === 'csv' ? csv(read.record) : JSON.stringify(read.record)}\n`;
      }
    }
  };
  if (!(await streamed(lines, out))) return EXIT.failed;
  if (damaged === 0) return EXIT.done;
  return failedWith(say, `${damaged} damaged places were skipped; see ra-sidecar usage verify`);
}

/** False: the reader of `out` closed it early, as `head` does, which is no fault. Rejects if it cannot be written. */
async function streamed(lines: () => AsyncGenerator<string>, out: Writable): Promise<boolean> {
  try {
    await pipeline(lines, out, { end: false });
    await written(out, '');
    return true;
  } catch (error) {
    if (READER_CLOSED.has((error as NodeJS.ErrnoException).code ?? '')) return false;
    throw error;
  }
}

/** Beyond every record. */
const NEWEST: Position = { segment: Number.MAX_SAFE_INTEGER, offset: 0 };

/** Sums by day, and of a day by hour as far as they are known. `problems`: why some are missing. */
type Sums = Pick<Totals, 'days' | 'byHour'> & { readonly problems: readonly string[] };

/** What the sidecars of a store have put there: of each day that one of them keeps, in rows of its own. */
function fleetSums(rowsOn: (day: string) => Promise<readonly TotalsRow[]>): Sums {
  const days = Array.from(
    { length: MOST_DAYS + 1 },
    (_, ago) => periodsOf(new Date(Date.now() - ago * DAY_MS).toISOString())[0],
  );
  return { days, byHour: async (day) => new Map([[day, await rowsOn(day)]]), problems: [] };
}

/** Those of a spool. They include days whose segments are deleted. */
async function spoolSums(dir: string): Promise<Sums> {
  const problems: string[] = [];
  const totals = await Totals.read({
    clock: systemClock,
    spool: {
      estimated: [],
      position: NEWEST,
      oldest: () => oldestPosition(dir),
      read: (from) => readFrom(dir, from),
    },
    dir: totalsDir(dir),
    listener: {
      damaged: (bytes) => problems.push(`${bytes} damaged bytes were skipped; see ra-sidecar usage verify`),
      unreadable: (file) => problems.push(`${file} is damaged, its day is counted from the spool`),
      incomplete: (why) => problems.push(`the sums of some days are too low: ${why}`),
      unwritten: () => undefined,
    },
  });
  return { days: totals.days, byHour: (day) => totals.byHour(day), problems };
}

/** Those that the sidecar of this configuration has, by its last copy where they are in the store. */
async function pricesOf(config: Pick<Config, 'dataDir' | 'pricing' | 'models'>): Promise<PriceList> {
  const file = priceFileOf(config);
  return file === undefined ? BUILT_IN_PRICES : await readPriceFile(file, config.models, Date.now());
}

/** Writes sums in the columns of FOCUS. */
async function exportFocus(
  sums: Sums,
  prices: PriceList,
  options: ExportOptions,
  { out, err: say }: UsageStreams,
): Promise<number> {
  const { from, to, account } = options;
  const days = [...sums.days].filter((day) => startOf(day) + DAY_MS > from && startOf(day) < to).sort();
  const lines = async function* (): AsyncGenerator<string> {
    yield `${FOCUS_COLUMNS.join()}\n`;
    for (const day of days) {
      for (const [period, all] of await sums.byHour(day)) {
        // A day's row is complete at its end, so it comes with the last part of the day, or with a day that the export has from its start.
        const isOver = isHour(period) || startOf(day) + DAY_MS <= Date.now() || startOf(day) >= from;
        if (!isOver || !isWithin(isHour(period) ? startOf(period) : startOf(day) + DAY_MS - 1, options)) continue;
        const rows = all.filter((row) => account === undefined || row.account === account);
        for (const cells of focusRows(period, rows, prices, options)) yield `${csvLine(cells)}\n`;
      }
    }
  };
  if (!(await streamed(lines, out))) return EXIT.failed;
  for (const problem of sums.problems) say(`ra-sidecar: ${problem}\n`);
  return sums.problems.length === 0 ? EXIT.done : EXIT.failed;
}

type ExportOptions = Readonly<ReturnType<typeof exportOptions>>;

/** `format`: `jsonl`, `csv` or `focus`. */
function exportOptions(values: ExportValues) {
  return {
    from: timeOf('--from', values.from, -Infinity),
    to: timeOf('--to', values.to, Infinity),
    account: values.account,
    format: values.format ?? 'jsonl',
    provider: values.provider ?? 'ra-sidecar',
    service: values.service ?? 'Model inference',
    billingAccount: values['billing-account'] ?? 'default',
  };
}

function timeOf(option: string, text: string | undefined, absent: number): number {
  if (text === undefined) return absent;
  const time = TIME.test(text) ? exactTime(text) : NaN;
  if (Number.isNaN(time)) throw new UsageError(`${option} must be a day or a time such as 2026-10-03T12:00:00Z`);
  return time;
}

function isWanted({ kind, at, account }: UsageRecord, options: ExportOptions): boolean {
  if (kind !== 'close' || (options.account !== undefined && account !== options.account)) return false;
  return isWithin(Date.parse(at), options);
}

function isWithin(time: number, { from, to }: ExportOptions): boolean {
  return time >= from && time < to;
}

function csv(record: UsageRecord): string {
  return csvLine(COLUMNS.map(([, value]) => value(record)));
}

/** A line of RFC 4180. */
function csvLine(cells: readonly (string | number | null | undefined)[]): string {
  return cells
    .map((cell) => {
      const text = String(cell ?? '');
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    })
    .join();
}
