import type { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { UsageRecord } from '../domain/usage-record.js';
import { exactTime } from '../lib/clock.js';
import { readFrom } from '../usage/reader.js';
import { START } from '../usage/spool-format.js';
import { EXIT, parsed, UsageError } from './command.js';
import { orUsage } from './help.js';
import { COMMANDS } from './command-table.js';
import { needSpool } from './spool-folder.js';

/** Error codes of a stream whose reader has closed it. */
const LEFT: ReadonlySet<string> = new Set(['EPIPE', 'ERR_STREAM_PREMATURE_CLOSE', 'ERR_STREAM_DESTROYED']);

/** Days and times with a zone; a day starts at midnight UTC. A time without a zone would differ between machines. */
const TIME = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d))?$/;

const COLUMNS: readonly (readonly [name: string, value: (record: UsageRecord) => string | number | undefined])[] = [
  ['id', ({ id }) => id],
  ['requestId', ({ requestId }) => requestId],
  ['at', ({ at }) => at],
  ['account', ({ account }) => account],
  ['keyId', ({ keyId }) => keyId],
  ['model', ({ model }) => model],
  ['route', ({ route }) => route],
  ['promptTokens', ({ promptTokens }) => promptTokens],
  ['cachedTokens', ({ cachedTokens }) => cachedTokens],
  ['completionTokens', ({ completionTokens }) => completionTokens],
  ['priceVersion', ({ price }) => price?.version],
  ['picodollars', ({ price }) => price?.picodollars],
  ['outcome', ({ outcome }) => outcome],
  ['estimated', ({ estimated }) => (estimated ? 'true' : '')],
];

/** Streams for the export and its messages. */
export interface ExportStreams {
  readonly out: Writable;
  readonly err: (line: string) => void;
}

/**
 * `ra-sidecar usage export`: writes the `close` records of the spool in `dir`, at the speed of the reader of `out`. May
 * run beside the sidecar. Resolves with the exit code; rejects without a spool, or if the disk fails.
 */
export function usageExport(args: readonly string[], dir: string, streams: ExportStreams): Promise<number> {
  return orUsage('usage export', { err: streams.err }, () => write(optionsOf(args), dir, streams));
}

async function write(options: Options, dir: string, { out, err: complain }: ExportStreams): Promise<number> {
  needSpool(dir);
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
  try {
    await pipeline(lines, out, { end: false });
    // Waits until all is flushed, since the process ends afterwards.
    await new Promise<void>((resolve, reject) => {
      out.write('', (error) => {
        if (error) reject(error);
        else resolve();
      });
    });
  } catch (error) {
    // A reader that closes early, such as `head`, wants no more.
    if (LEFT.has((error as NodeJS.ErrnoException).code ?? '')) return EXIT.failed;
    throw error;
  }
  if (damaged === 0) return EXIT.done;
  complain(`ra-sidecar: ${damaged} damaged places were skipped; see ra-sidecar usage verify\n`);
  return EXIT.failed;
}

interface Options {
  readonly from: number;
  readonly to: number;
  readonly account: string | undefined;
  /** `jsonl` or `csv`. */
  readonly format: string;
}

function optionsOf(args: readonly string[]): Options {
  const { values } = parsed(COMMANDS.usage.commands.export, args);
  return {
    from: timeOf('--from', values.from, -Infinity),
    to: timeOf('--to', values.to, Infinity),
    account: values.account,
    format: values.format ?? 'jsonl',
  };
}

function timeOf(option: string, text: string | undefined, absent: number): number {
  if (text === undefined) return absent;
  const time = TIME.test(text) ? exactTime(text) : NaN;
  if (Number.isNaN(time)) throw new UsageError(`${option} must be a day or a time such as 2026-10-03T12:00:00Z`);
  return time;
}

function isWanted({ kind, at, account }: UsageRecord, options: Options): boolean {
  if (kind !== 'close' || (options.account !== undefined && account !== options.account)) return false;
  const time = Date.parse(at);
  return time >= options.from && time < options.to;
}

/** A line of RFC 4180. */
function csv(record: UsageRecord): string {
  return COLUMNS.map(([, value]) => {
    const text = String(value(record) ?? '');
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join();
}
