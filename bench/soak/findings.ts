/** The results of a soak, row by row, and how many of them differ from what they should be. */
import type { Row } from '../support/results.js';

/** Values are counts, MiB, ms or, as bigint, picodollars. */
export class Findings {
  readonly #rows: Row[] = [];
  #wrong = 0;

  /** A value; with `should`, one that must equal this. */
  is<Value extends number | bigint>(what: string, value: Value, should?: NoInfer<Value>): void {
    if (should !== undefined && value !== should) this.#wrong += 1;
    this.#keep(what, value, should === undefined ? '' : cell(should));
  }

  /** A value that may be `most`. NaN, for a value never seen, is wrong. */
  atMost(what: string, value: number, most: number): void {
    if (!(value <= most)) this.#wrong += 1;
    this.#keep(what, value, `at most ${most}`);
  }

  get rows(): readonly Row[] {
    return this.#rows;
  }

  get wrong(): number {
    return this.#wrong;
  }

  /** For the end of the results. */
  get conclusion(): string {
    return this.#wrong === 0 ? 'All is as it should be.' : `**${this.#wrong} of these are not as they should be.**`;
  }

  #keep(what: string, value: number | bigint, should: number | string): void {
    this.#rows.push({ what, value: cell(value), 'should be': should });
  }
}

/** JSON has no number as long as a sum of money. */
function cell(value: number | bigint): number | string {
  return typeof value === 'bigint' ? String(value) : value;
}
