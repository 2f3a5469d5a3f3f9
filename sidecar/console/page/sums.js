// The strip on top: six numbers, each with the curve of its last two minutes.
import { drawn, element, mark, say } from './dom.js';
import { merged, overModels, perSecond, quantile, since, total } from './history.js';
import { count, rate, seconds } from './text.js';

/** @typedef {import('../views.js').Snapshot} Snapshot */
/** @typedef {import('./history.js').History} History */
/** @typedef {'minute' | 'start'} Range */

/** Dimensions of a curve. */
const WIDTH = 120;
const HEIGHT = 28;

const busy = (/** @type {Snapshot} */ snapshot) => overModels(snapshot, ({ queue }) => queue.busy);
const seats = (/** @type {Snapshot} */ snapshot) => overModels(snapshot, ({ queue }) => queue.seats);
const waiting = (/** @type {Snapshot} */ snapshot) => overModels(snapshot, ({ queue }) => queue.waiting);
const output = (/** @type {Snapshot} */ snapshot) => overModels(snapshot, ({ tokens }) => tokens.output);
const ended = (/** @type {Snapshot} */ snapshot) => overModels(snapshot, (model) => total(model.ended));
const refused = (/** @type {Snapshot} */ snapshot) => overModels(snapshot, (model) => total(model.refusals));
const firstTokens = (/** @type {Snapshot} */ snapshot) =>
  merged(snapshot.models.filter(({ kind }) => kind === 'chat').map(({ firstToken }) => firstToken));

/** For each: its name, its current value as text, and a point of its curve. */
const SUMS = /** @type {const} */ ([
  ['Seats held', (/** @type {Snapshot} */ now) => [count(busy(now)), `of ${count(seats(now))}`], busy],
  [
    'Waiting',
    (/** @type {Snapshot} */ now) => [count(waiting(now)), waiting(now) === 1 ? 'request' : 'requests'],
    waiting,
  ],
  ['Tokens made', perSecondOf(output), curveOf(output)],
  ['Requests ended', perMinuteOf(ended), curveOf(ended)],
  ['First token', firstToken, curveOfFirst],
  ['Refused', perMinuteOf(refused), curveOf(refused)],
]);

/** Made once. */
export class Sums {
  /** @type {{ value: Element; unit: Element; path: Element; area: Element }[]} */
  #tiles;

  /** @param {HTMLElement} section */
  constructor(section) {
    this.#tiles = SUMS.map(([title]) => {
      const value = element('b', {}, '–');
      const unit = element('small');
      const area = drawn('path', { class: 'area' });
      const path = drawn('path', { class: 'line' });
      const box = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' };
      const curve = drawn('svg', box, area, path);
      section.append(
        element('div', { class: 'sum' }, element('h2', {}, title), element('p', {}, value, ' ', unit), curve),
      );
      return { value, unit, path, area };
    });
  }

  /**
   * @param {Snapshot} now
   * @param {History} history
   * @param {Range} range
   */
  show(now, history, range) {
    SUMS.forEach(([, said, point], i) => {
      const tile = this.#tiles[i];
      if (!tile) return;
      const [value = '', unit = ''] = said(now, range === 'minute' ? history.base : undefined, range);
      say(tile.value, value);
      say(tile.unit, unit);
      const points = history.curve(point);
      const most = Math.max(1e-9, ...points);
      const step = WIDTH / Math.max(1, points.length - 1);
      const places = points.map(
        (each, x) => `${(x * step).toFixed(1)} ${(HEIGHT - 1 - (each / most) * (HEIGHT - 3)).toFixed(1)}`,
      );
      const line = places.length < 2 ? '' : `M${places.join('L')}`;
      mark(tile.path, 'd', line);
      mark(tile.area, 'd', line === '' ? '' : `${line}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z`);
    });
  }
}

/**
 * The start of a rate: a minute ago, or the start of the process.
 *
 * @param {Snapshot} now
 * @param {Snapshot | undefined} before
 * @param {Range} range
 * @param {(snapshot: Snapshot) => number} sum
 * @returns {number}
 */
function meanRate(now, before, range, sum) {
  if (range === 'minute') return perSecond(now, before, sum);
  return sum(now) / Math.max(1, (now.at - now.startedAt) / 1000);
}

/** @param {(snapshot: Snapshot) => number} sum */
function perSecondOf(sum) {
  return (/** @type {Snapshot} */ now, /** @type {Snapshot | undefined} */ before, /** @type {Range} */ range) => [
    rate(meanRate(now, before, range, sum)),
    'a second',
  ];
}

/** @param {(snapshot: Snapshot) => number} sum */
function perMinuteOf(sum) {
  return (/** @type {Snapshot} */ now, /** @type {Snapshot | undefined} */ before, /** @type {Range} */ range) => [
    rate(meanRate(now, before, range, sum) * 60),
    'a minute',
  ];
}

/** @param {(snapshot: Snapshot) => number} sum */
function curveOf(sum) {
  return (/** @type {Snapshot} */ now, /** @type {Snapshot | undefined} */ before) => perSecond(now, before, sum);
}

/**
 * @param {Snapshot} now
 * @param {Snapshot | undefined} before
 * @returns {string[]}
 */
function firstToken(now, before) {
  const times = since(firstTokens(now), before && firstTokens(before));
  return [seconds(quantile(times, 0.5)), `p95 ${seconds(quantile(times, 0.95))}`];
}

/**
 * @param {Snapshot} now
 * @param {Snapshot | undefined} before
 * @returns {number}
 */
function curveOfFirst(now, before) {
  return quantile(since(firstTokens(now), before && firstTokens(before)), 0.5) ?? 0;
}
