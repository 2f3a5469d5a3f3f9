/**
 * The spool on disk: a folder with numbered segments, and in each one line per record or mark. Spools of earlier versions are read, so
 * nothing of it changes.
 *
 * A line is `<bytes of json> <crc32c of json> <json>\n`, the length in decimal without leading zeros, the checksum as 8
 * lower-case hexadecimal digits. JSON contains no raw newline, so a record is one line, and after damage a reader
 * continues at the next newline. The encoding is canonical: each line has exactly one form.
 */
import { join } from 'node:path';
import { exactly, UTC_TIME } from '../contracts/common-schema.js';
import { compile } from '../contracts/validator.js';
import type { UsageRecord } from '../domain/usage-record.js';
import { jsonIn } from '../lib/json-in.js';

/** A position in the spool: the segment's number, from 1, and a byte offset in it. */
export interface Position {
  readonly segment: number;
  readonly offset: number;
}

/** The same in a file. */
export const POSITION = exactly({
  segment: { type: 'integer', minimum: 1 },
  offset: { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER },
});

/** The position of a reader that has read nothing. */
export const START: Position = { segment: 1, offset: 0 };

/** Below 0: `a` comes before `b`. */
export function comparePositions(a: Position, b: Position): number {
  return a.segment - b.segment || a.offset - b.offset;
}

/** Whether an untrusted value is a position in a spool. */
export function isPosition(value: unknown): value is Position {
  if (typeof value !== 'object' || value === null || !('segment' in value) || !('offset' in value)) return false;
  const { segment, offset } = value;
  return Number.isSafeInteger(segment) && Number.isSafeInteger(offset) && Number(segment) >= 1 && Number(offset) >= 0;
}

/** The folder for damaged bytes and foreign files, kept for inspection. */
export const QUARANTINE = 'quarantine';

export function segmentPath(dir: string, segment: number): string {
  return join(dir, `${segmentName(segment)}.seg`);
}

/** A segment's number as in the names of its files, which sort by it. */
export function segmentName(segment: number): string {
  return String(segment).padStart(20, '0');
}

/** The number of the segment with this file name; undefined if it is another file. */
export function segmentOf(file: string): number | undefined {
  const digits = /^(\d{20})\.seg$/.exec(file)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/** Lines for the spool itself, which readers of records do not get. */
export type Mark =
  /**
   * The first line of a segment. `after`: the end of the valid part of the previous segments; null: it is the first segment. Later bytes
   * were never acknowledged and are repeated here.
   */
  | { readonly kind: 'head'; readonly after: Position | null }
  /** The last line of a spool that was closed in order: every request before it has its close. */
  | { readonly kind: 'end' }
  /** The same after a recovery: the closes that it added are durable before this is written. */
  | { readonly kind: 'recovered' };

/** What is at an offset of a buffer. `bytes`: of the line without its newline. */
export type Line =
  | { readonly kind: 'record'; readonly record: UsageRecord; readonly bytes: number }
  | { readonly kind: 'mark'; readonly mark: Mark; readonly bytes: number }
  | { readonly kind: 'bad' }
  /** A line that continues after the end of the buffer. */
  | { readonly kind: 'short' };

/** Longer JSON is treated as damage. Ids, accounts and models are bounded when they are received: 6 KiB at most. */
export const MAX_JSON_BYTES = 64 * 1024;

const NEWLINE = 0x0a;
const SPACE = 0x20;
const CRC_DIGITS = 8;
/** `65536 0123abcd ` */
export const MAX_HEADER_BYTES = String(MAX_JSON_BYTES).length + 1 + CRC_DIGITS + 1;

const TEXT = { type: 'string', maxLength: 1024 };
const TOKENS = { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER };

const RECORD = {
  id: { ...TEXT, minLength: 1 },
  requestId: TEXT,
  kind: { enum: ['open', 'progress', 'close'] },
  at: UTC_TIME,
  account: TEXT,
  keyId: TEXT,
  model: TEXT,
  route: TEXT,
  promptTokens: TOKENS,
  cachedTokens: TOKENS,
  completionTokens: TOKENS,
};

/** Whether a value is a usage record. Unknown fields are accepted: a newer sidecar's records must not be damage for an older one. */
const checkRecord = compile<UsageRecord>(
  {
    type: 'object',
    required: Object.keys(RECORD),
    properties: {
      ...RECORD,
      tier: TEXT,
      batch: { const: true },
      price: {
        type: 'object',
        required: ['version', 'picodollars'],
        properties: { version: TEXT, picodollars: { type: 'string', maxLength: 40, pattern: '^\\d+$' } },
      },
      outcome: { enum: ['done', 'cancelled', 'failed', 'timeout', 'refused'] },
      claim: TEXT,
      quota: TOKENS,
      estimated: { const: true },
    },
  },
  { written: 'usage-record' },
);

export function encode(record: UsageRecord): Buffer {
  return lineOf(JSON.stringify(record));
}

export function encodeMark(mark: Mark): Buffer {
  return lineOf(JSON.stringify(mark));
}

function lineOf(json: string): Buffer {
  const body = Buffer.from(json);
  const crc = crc32c(body).toString(16).padStart(CRC_DIGITS, '0');
  return Buffer.concat([Buffer.from(`${body.length} ${crc} `), body, Buffer.of(NEWLINE)]);
}

/** Decodes the line at `at`, which ends by its own length, so that a damaged newline is no loss: the caller checks the byte after. */
export function decodeAt(buffer: Buffer, at: number): Line {
  const header = headerAt(buffer, at);
  if (header === 'bad' || header === 'short') return { kind: header };
  const from = at + header.bytes;
  const body = buffer.subarray(from, from + header.length);
  if (body.length < header.length) return { kind: 'short' };
  if (crc32c(body) !== header.crc) return { kind: 'bad' };
  const value = jsonIn(body.toString());
  const bytes = header.bytes + header.length;
  if (isMark(value)) return { kind: 'mark', mark: value, bytes };
  const checked = checkRecord(value);
  return checked.ok ? { kind: 'record', record: checked.value, bytes } : { kind: 'bad' };
}

function headerAt(
  buffer: Buffer,
  at: number,
): { readonly length: number; readonly crc: number; readonly bytes: number } | 'bad' | 'short' {
  const text = buffer.subarray(at, at + MAX_HEADER_BYTES);
  const space = text.indexOf(SPACE);
  const end = space + 1 + CRC_DIGITS;
  const digits = text.toString('latin1', 0, space < 0 ? text.length : space);
  if (space < 0 || text.length <= end) {
    const mayBeLength = digits === '' || isLength(digits);
    return mayBeLength && (space < 0 || /^[0-9a-f]* ?$/.test(text.toString('latin1', space + 1))) ? 'short' : 'bad';
  }
  const crc = text.toString('latin1', space + 1, end);
  if (!isLength(digits) || !/^[0-9a-f]{8}$/.test(crc) || text[end] !== SPACE) return 'bad';
  return { length: Number(digits), crc: Number.parseInt(crc, 16), bytes: end + 1 };
}

function isLength(digits: string): boolean {
  return /^[1-9]\d*$/.test(digits) && Number(digits) <= MAX_JSON_BYTES;
}

function isMark(value: unknown): value is Mark {
  if (typeof value !== 'object' || value === null || !('kind' in value)) return false;
  if (value.kind === 'end' || value.kind === 'recovered') return true;
  return value.kind === 'head' && 'after' in value && (value.after === null || isPosition(value.after));
}

/** The polynomial 0x1EDC6F41 of CRC-32C with its bits reversed, since the least significant bit comes first. */
const POLYNOMIAL = 0x82f63b78;

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ POLYNOMIAL : crc >>> 1;
  return crc;
});

/**
 * CRC-32C (Castagnoli) of `bytes`, an unsigned 32-bit number: the checksum of iSCSI, ext4 and LevelDB, RFC 3720, appendix B.4 and
 * section 12.1. Node's zlib has the other CRC-32 only. A byte at a time; 400 bytes take about a microsecond.
 */
export function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = (crc >>> 8) ^ (TABLE[(crc ^ byte) & 0xff] ?? 0);
  return (crc ^ 0xffffffff) >>> 0;
}
