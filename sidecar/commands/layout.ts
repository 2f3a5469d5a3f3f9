/** Formats numbers and tables for people, and parses sizes. */
import { UsageError } from './command.js';

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const;

/** `1.5 GiB`: one decimal, none for bytes. */
export function size(bytes: number): string {
  const power = bytes < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toLocaleString('en', { maximumFractionDigits: power === 0 ? 0 : 1 })} ${UNITS[power] ?? ''}`;
}

/** The bytes of a text such as `24GiB`, `24G` or `512 MiB`. Throws {@link UsageError}. */
export function bytesOf(option: string, text: string): number {
  const [, number = '', unit = ''] = /^(\d{1,6}(?:\.\d{1,3})?) ?([KMGT])(?:iB?)?$/i.exec(text) ?? [];
  const power = UNITS.findIndex((name) => name.startsWith(unit.toUpperCase()) && unit !== '');
  if (power < 0) throw new UsageError(`${option} must be a size such as 24GiB or 512MiB`);
  return Math.round(Number(number) * 1024 ** power);
}

/** A whole number within bounds. Throws {@link UsageError}. */
export function wholeOf(option: string, text: string, least: number, most: number): number {
  const value = /^\d{1,9}$/.test(text) ? Number(text) : NaN;
  if (!(value >= least && value <= most)) {
    throw new UsageError(`${option} must be a whole number from ${least} to ${most}`);
  }
  return value;
}

/** Rows as aligned columns, one line each; the first row is the head. */
export function columns(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]): string => row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join('  ');
  return rows.map((row) => `${line(row).trimEnd()}\n`).join('');
}

/** A number with three significant digits and separated thousands. */
export function rate(value: number): string {
  return value.toLocaleString('en', value >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 });
}
