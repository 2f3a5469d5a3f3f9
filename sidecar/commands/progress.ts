import type { Clock } from '../lib/clock.js';

/** Where a bar is drawn: stderr. */
export interface Terminal {
  readonly isTTY?: boolean;
  /** Characters of a line. */
  readonly columns?: number;
  write(text: string): unknown;
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
