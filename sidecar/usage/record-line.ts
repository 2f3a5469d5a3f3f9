/**
 * One line of a segment: `<bytes of json> <crc32c of json> <json>\n`, the length in decimal without leading zeros, the
 * checksum as 8 lower-case hexadecimal digits. JSON contains no raw newline, so a record is one line, and after damage
 * a reader continues at the next newline. The encoding is canonical: each line has exactly one form.
 */
import type { UsageRecord } from '../domain/usage-record.js';
import { crc32c } from './crc32c.js';
import { checkRecord } from './record-schema.js';

/** A position in the spool: the segment's number, from 1, and a byte offset in it. */
export interface Position {
  readonly segment: number;
  readonly offset: number;
}

/** Lines for the spool itself, which readers of records do not get. */
export type Mark =
  /**
   * The first line of a segment. `after`: the end of the valid part of the previous segments; null: it is the first
   * segment. Later bytes were never acknowledged and are repeated here.
   */
  | { readonly kind: 'head'; readonly after: Position | null }
  /** The last line of a spool that was closed in order: every request before it has its close. */
  | { readonly kind: 'end' }
  /** The same after a recovery: the closes that it added are durable before this is written. */
  | { readonly kind: 'recovered' };

/** The content at a place in a buffer. `bytes`: of the line without its newline. */
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

/** The line of a record. */
export function encode(record: UsageRecord): Buffer {
  return line(JSON.stringify(record));
}

/** The line of a mark. */
export function encodeMark(mark: Mark): Buffer {
  return line(JSON.stringify(mark));
}

function line(json: string): Buffer {
  const body = Buffer.from(json);
  const crc = crc32c(body).toString(16).padStart(CRC_DIGITS, '0');
  return Buffer.concat([Buffer.from(`${body.length} ${crc} `), body, Buffer.of(NEWLINE)]);
}

/** Decodes one whole line, with or without its newline. */
export function decode(bytes: Buffer): Extract<Line, { readonly kind: 'record' | 'mark' }> | { readonly kind: 'bad' } {
  const text = bytes.at(-1) === NEWLINE ? bytes.subarray(0, -1) : bytes;
  const line = decodeAt(text, 0);
  return (line.kind === 'record' || line.kind === 'mark') && line.bytes === text.length ? line : { kind: 'bad' };
}

/**
 * Decodes the line at `at`. Its own length determines its end, so a line with a damaged newline is kept. The caller
 * must check the byte after it.
 */
export function decodeAt(buffer: Buffer, at: number): Line {
  const header = headerAt(buffer, at);
  if (header === 'bad' || header === 'short') return { kind: header };
  const from = at + header.bytes;
  const body = buffer.subarray(from, from + header.length);
  if (body.length < header.length) return { kind: 'short' };
  if (crc32c(body) !== header.crc) return { kind: 'bad' };
  const value = parsed(body);
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
    const whole = digits === '' || isLength(digits);
    return whole && (space < 0 || /^[0-9a-f]* ?$/.test(text.toString('latin1', space + 1))) ? 'short' : 'bad';
  }
  const crc = text.toString('latin1', space + 1, end);
  if (!isLength(digits) || !/^[0-9a-f]{8}$/.test(crc) || text[end] !== SPACE) return 'bad';
  return { length: Number(digits), crc: Number.parseInt(crc, 16), bytes: end + 1 };
}

function isLength(digits: string): boolean {
  return /^[1-9]\d*$/.test(digits) && Number(digits) <= MAX_JSON_BYTES;
}

function parsed(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString()) as unknown;
  } catch {
    return undefined;
  }
}

function isMark(value: unknown): value is Mark {
  if (typeof value !== 'object' || value === null || !('kind' in value)) return false;
  if (value.kind === 'end' || value.kind === 'recovered') return true;
  return value.kind === 'head' && 'after' in value && (value.after === null || isPosition(value.after));
}

/** Whether an untrusted value is a position in a spool. */
function isPosition(value: unknown): value is Position {
  if (typeof value !== 'object' || value === null || !('segment' in value) || !('offset' in value)) return false;
  const { segment, offset } = value;
  return Number.isSafeInteger(segment) && Number.isSafeInteger(offset) && Number(segment) >= 1 && Number(offset) >= 0;
}
