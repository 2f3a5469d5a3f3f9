// Counts by name, since the start and in the last minute, as far as it is known: refusals of a model, errors.
import { element, fill, Keyed, mark, rowOf, say, scrolling, tableOf } from './dom.js';
import { count } from './text.js';

/** @typedef {readonly [key: string, text: string, minute: number | null, all: number]} Counted */

/** A table of counts. Made once. */
export class CountTable {
  /** @type {HTMLElement} */
  element;
  #table;
  #none = element('p', { class: 'quantiles' });
  /** @type {Keyed<Counted, HTMLTableRowElement>} */
  #rows;
  /** The head of the column of the last minute. */
  #minute;

  /**
   * @param {string} caption
   * @param {string} name Of what is counted.
   */
  constructor(caption, name) {
    const { table, body } = tableOf(caption, [name, 'Last minute', 'Since start']);
    this.#table = scrolling(table);
    this.element = element('div', {}, this.#none, this.#table);
    this.#minute = table.tHead?.rows[0]?.cells[1];
    this.#rows = new Keyed(
      body,
      ([key]) => key,
      () => rowOf(2),
      (row, [, text, minute, all]) => {
        fill(row, [text, count(minute), count(all)]);
        mark(row, 'data-tone', (minute ?? 0) > 0 ? 'warn' : all > 0 ? 'plain' : 'quiet');
      },
    );
  }

  /**
   * @param {readonly Counted[]} counts
   * @param {string} rest What is said in a last row of those that count nothing; empty: nothing.
   * @param {string} span What the last minute is, in words: `last 12 s`.
   */
  show(counts, rest, span) {
    if (this.#minute) say(this.#minute, `${span.charAt(0).toUpperCase()}${span.slice(1)}`);
    // An empty table would only take room.
    this.#table.hidden = counts.length === 0;
    this.#none.hidden = counts.length > 0;
    say(this.#none, rest);
    this.#rows.show(rest === '' || counts.length === 0 ? counts : [...counts, ['', rest, 0, 0]]);
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
  return Object.entries(now).map(([name, all]) => [name, words(name), before ? all - (before[name] ?? 0) : null, all]);
}
