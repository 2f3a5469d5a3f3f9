/** What a terminal shows: numbers, tables, a progress line; and the sizes and numbers that are typed into one. */
import type { Clock } from '../lib/clock.js';
import { UsageError, type Terminal } from './command.js';

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

/** The least time between two drawings, ms. */
const REDRAW_MS = 100;

const CLEAR = '\r\u001b[K';

/** A progress line at the bottom of a terminal; does nothing without one. */
export class Progress {
  readonly #terminal: Terminal;
  readonly #clock: Clock;
  #drawnAt = -Infinity;

  constructor(clock: Clock, terminal: Terminal) {
    this.#clock = clock;
    this.#terminal = terminal;
  }

  /** `share`: 0 to 1. `label` is before the bar, `more` after it. */
  show(label: string, share: number, more = ''): void {
    const now = this.#clock.now();
    if (this.#terminal.isTTY !== true || now - this.#drawnAt < REDRAW_MS) return;
    this.#drawnAt = now;
    const part = Math.min(1, Math.max(0, share));
    const room = (this.#terminal.columns ?? 80) - label.length - more.length - 11;
    const width = Math.max(0, Math.min(40, room));
    const filled = Math.round(part * width);
    const bar = width === 0 ? '' : ` [${'#'.repeat(filled)}${' '.repeat(width - filled)}]`;
    this.#terminal.write(`${CLEAR}${label}${bar} ${Math.floor(part * 100)}% ${more}`);
  }

  /** Removes the line. Idempotent. */
  clear(): void {
    if (this.#drawnAt === -Infinity) return;
    this.#drawnAt = -Infinity;
    this.#terminal.write(CLEAR);
  }
}
