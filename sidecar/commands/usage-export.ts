import type { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { parseArgs } from 'node:util';
import type { UsageRecord } from '../ledger.js';
import { readFrom, START } from '../usage/segments.js';

export const EXPORT_HELP = `usage: ra-sidecar usage export [--from TIME] [--to TIME] [--account A] [--format jsonl|csv]

  export   write what was billed to stdout, one request a line, in the order of the spool; exit code 1 when damage was
           passed over. TIME is ISO 8601, for example 2026-10-03 or 2026-10-03T12:00:00Z; --to itself is left out.
`;

/** Exit codes besides 0: the spool is damaged or cannot be read, or stdout was closed early; a wrong command line. */
const EXIT = { failed: 1, usage: 2 } as const;

const FORMATS = ['jsonl', 'csv'] as const;

/** What a stream says when its reader is gone. */
const LEFT: ReadonlySet<string> = new Set(['EPIPE', 'ERR_STREAM_PREMATURE_CLOSE', 'ERR_STREAM_DESTROYED']);

/** Days and times with a zone; a day alone begins at midnight UTC. A time without its zone would mean another elsewhere. */
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

/** Where the export goes and where it complains. */
export interface ExportStreams {
  readonly out: Writable;
  readonly complain: (line: string) => void;
}

/**
 * `ra-sidecar usage export`: writes the closes in the spool in `dir`, no faster than `out` takes them. May run beside the
 * sidecar. Resolves with the exit code; rejects when the disk fails.
 */
export async function usageExport(args: readonly string[], dir: string, streams: ExportStreams): Promise<number> {
  const { out, complain } = streams;
  const options = parsed(args);
  if (options === undefined) {
    complain(EXPORT_HELP);
    return EXIT.usage;
  }
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
  } catch (error) {
    // A reader that leaves, as `head` does, knows that this is not all.
    if (LEFT.has((error as NodeJS.ErrnoException).code ?? '')) return EXIT.failed;
    throw error;
  }
  if (damaged === 0) return 0;
  complain(`ra-sidecar: ${damaged} damaged places were passed over; see ra-sidecar usage verify\n`);
  return EXIT.failed;
}

interface Options {
  readonly from: number;
  readonly to: number;
  readonly account: string | undefined;
  readonly format: (typeof FORMATS)[number];
}

/** Undefined: the command line is wrong. */
function parsed(args: readonly string[]): Options | undefined {
  const text = { type: 'string' } as const;
  try {
    const { values } = parseArgs({ args: [...args], options: { from: text, to: text, account: text, format: text } });
    const from = timeOf(values.from, -Infinity);
    const to = timeOf(values.to, Infinity);
    const format = FORMATS.find((name) => name === (values.format ?? 'jsonl'));
    if (Number.isNaN(from) || Number.isNaN(to) || format === undefined) return undefined;
    return { from, to, account: values.account, format };
  } catch {
    return undefined;
  }
}

function timeOf(text: string | undefined, absent: number): number {
  if (text === undefined) return absent;
  return TIME.test(text) ? Date.parse(text) : NaN;
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
