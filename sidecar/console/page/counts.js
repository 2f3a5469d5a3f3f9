// Counts by name, since the start and in the last minute: refusals of a model, errors.
import { fill, Keyed, mark, rowOf, scrolling, tableOf } from './dom.js';
import { count } from './text.js';

/** @typedef {readonly [key: string, text: string, minute: number, all: number]} Counted */

/** A table of counts. Made once. */
export class CountTable {
  /** @type {HTMLElement} */
  element;
  /** @type {Keyed<Counted, HTMLTableRowElement>} */
  #rows;

  /**
   * @param {string} caption
   * @param {string} name Of what is counted.
   */
  constructor(caption, name) {
    const { table, body } = tableOf(caption, [name, 'Last minute', 'Since start']);
    this.element = scrolling(table);
    this.#rows = new Keyed(
      body,
      ([key]) => key,
      () => rowOf(2),
      (row, [, text, minute, all]) => {
        fill(row, [text, count(minute), count(all)]);
        mark(row, 'data-tone', minute > 0 ? 'warn' : all > 0 ? 'plain' : 'quiet');
      },
    );
  }

  /**
   * @param {readonly Counted[]} counts
   * @param {string} rest What is said in a last row of those that count nothing; empty: nothing.
   */
  show(counts, rest) {
    this.#rows.show(rest === '' ? counts : [...counts, ['', rest, 0, 0]]);
  }
}

/**
 * Counts with what came in the last minute. What was not there a minute ago has come since.
 *
 * @param {Readonly<Record<string, number>>} now
 * @param {Readonly<Record<string, number>> | undefined} before Undefined: nothing is known of a minute ago.
 * @param {(name: string) => string} words
 * @returns {Counted[]}
 */
export function counted(now, before, words) {
  return Object.entries(now).map(([name, all]) => [name, words(name), before ? all - (before[name] ?? 0) : 0, all]);
}
