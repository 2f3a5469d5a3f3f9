// A histogram: a bar for each bucket of the metric, at fixed places, so that updates can be compared.
import { element, fill, Keyed, mark, rowOf, say, tableOf } from './dom.js';
import { quantile } from './history.js';
import { count, seconds, some } from './text.js';

/** @typedef {import('../views.js').HistogramView} Reading */

/**
 * One bucket.
 *
 * @typedef {object} Bucket
 * @property {number} at
 * @property {number} values
 * @property {string} upTo
 * @property {number} share Of the fullest one.
 * @property {string} holds Which quantile lies in it; the first of several.
 * @property {string} label What is written above it.
 * @property {'left' | 'middle' | 'right'} side Of its middle, on which the label is.
 */

/** Every so manieth bucket is labelled. */
const LABELLED = 4;

/** Two labels above bars that are at most so many places apart are on different sides of their bars. */
const NEAR = 4;

const QUANTILES = /** @type {const} */ ([
  ['p50', 0.5],
  ['p95', 0.95],
  ['p99', 0.99],
]);

/**
 * The number of values in each bucket.
 *
 * @param {Reading} histogram
 * @returns {Bucket[]}
 */
export function bucketsOf(histogram) {
  const { bounds, counts } = histogram;
  const alone = counts.map((value, i) => Math.max(0, value - (counts[i - 1] ?? 0)));
  const most = Math.max(1, ...alone);
  const marks = QUANTILES.slice(0, 2).map(([name, share]) => ({ name, at: placeOf(histogram, share) }));
  const [first, last] = marks;
  const near = first !== undefined && last !== undefined && last.at - first.at <= NEAR;
  return alone.map((values, at) => {
    const bound = bounds[at];
    const here = marks.filter((each) => each.at === at).map(({ name }) => name);
    const side = !near || here.length > 1 ? 'middle' : here[0] === first.name ? 'left' : 'right';
    return {
      at,
      values,
      upTo: bound === undefined ? `over ${seconds(bounds.at(-1) ?? 0)}` : seconds(bound),
      share: values / most,
      holds: here[0] ?? '',
      label: here.join(', '),
      side,
    };
  });
}

/**
 * The bucket that a quantile lies in; -1: there are no values.
 *
 * @param {Reading} histogram
 * @param {number} share
 * @returns {number}
 */
function placeOf({ counts }, share) {
  const all = counts.at(-1) ?? 0;
  return all === 0 ? -1 : counts.findIndex((value) => value >= share * all);
}

/** Made once per model and metric. */
export class HistogramPart {
  /** @type {HTMLElement} */
  element;
  #picture = element('div', { class: 'bars', role: 'img' });
  #sums = element('p', { class: 'quantiles' });
  /** @type {Keyed<Bucket, HTMLDivElement>} */
  #bars;
  /** @type {Keyed<Bucket, HTMLTableRowElement>} */
  #rows;
  #title;

  /**
   * @param {string} title
   * @param {string} model
   */
  constructor(title, model) {
    this.#title = title;
    const { table, body } = tableOf(`${title}, ${model}`, ['Up to', 'Values']);
    this.#bars = new Keyed(
      this.#picture,
      ({ at }) => at,
      ({ at, upTo }) =>
        element(
          'div',
          { class: 'bar' },
          element('i'),
          element('span', {}, at % LABELLED === LABELLED - 1 && !upTo.startsWith('over') ? upTo : ''),
        ),
      changeBar,
    );
    this.#rows = new Keyed(
      body,
      ({ at }) => at,
      () => rowOf(1),
      (row, { upTo, values }) => fill(row, [upTo, count(values)]),
    );
    this.element = element(
      'section',
      { class: 'part', 'aria-label': `${title} of ${model}` },
      element('h3', {}, title),
      this.#sums,
      this.#picture,
      element('details', {}, element('summary', {}, `${title} as a table`), table),
    );
  }

  /**
   * @param {Reading} histogram
   * @param {string} range What it is of: `last minute`.
   */
  show(histogram, range) {
    const buckets = bucketsOf(histogram);
    const all = histogram.counts.at(-1) ?? 0;
    const texts = QUANTILES.map(([name, share]) => `${name} ${seconds(quantile(histogram, share))}`);
    this.#bars.show(buckets);
    this.#rows.show(buckets);
    say(this.#sums, all === 0 ? `none, ${range}` : [...texts, `of ${count(all)}`].join('   '));
    mark(this.#picture, 'data-empty', all === 0 ? 'yes' : 'no');
    mark(
      this.#picture,
      'aria-label',
      `${this.#title}, ${range}: ${all === 0 ? 'none' : `${some(all, 'value')}, ${texts.join(', ')}`}`,
    );
  }
}

/**
 * @param {HTMLElement} bar
 * @param {Bucket} bucket
 */
function changeBar(bar, { values, upTo, share, holds, label, side }) {
  mark(bar, 'title', `${upTo.startsWith('over') ? upTo : `up to ${upTo}`}: ${count(values)}`);
  mark(bar, 'data-holds', holds);
  mark(bar, 'data-label', label);
  mark(bar, 'data-side', side);
  const [drawn] = bar.children;
  // So that a few values among many stay visible.
  if (drawn instanceof HTMLElement) drawn.style.height = values === 0 ? '0' : `max(2px, ${(share * 100).toFixed(1)}%)`;
}
