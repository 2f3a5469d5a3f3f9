// The strip on top: six numbers, each with the curve of its last two minutes.
import { drawn, element, mark, say } from './dom.js';
import { merged, overModels, perSecond, quantile, since, total } from './history.js';
import { count, rate, seconds } from './text.js';

/** @typedef {import('../views.js').Snapshot} Snapshot */
/** @typedef {import('./history.js').History} History */
/** @typedef {import('./history.js').Point} Point */
/** @typedef {'minute' | 'start'} Range */

/** Dimensions of a curve. */
const WIDTH = 120;
const HEIGHT = 28;

const busy = (/** @type {Snapshot} */ snapshot) => overModels(snapshot, ({ queue }) => queue.busy);
// A paused queue gives none of its seats.
const seats = (/** @type {Snapshot} */ snapshot) =>
  overModels(snapshot, ({ queue }) => (queue.paused ? 0 : queue.seats));
const waiting = (/** @type {Snapshot} */ snapshot) => overModels(snapshot, ({ queue }) => queue.waiting);
const output = (/** @type {Snapshot} */ snapshot) => overModels(snapshot, ({ tokens }) => tokens.output);
const ended = (/** @type {Snapshot} */ snapshot) => overModels(snapshot, (model) => total(model.ended));
const refused = (/** @type {Snapshot} */ snapshot) => overModels(snapshot, (model) => total(model.refusals));
const firstTokens = (/** @type {Snapshot} */ snapshot) =>
  merged(snapshot.models.filter(({ kind }) => kind === 'chat').map(({ firstToken }) => firstToken));

/** For each: its name, its current value as text, and a point of its curve. */
const SUMS = /** @type {const} */ ([
  ['Busy seats', (/** @type {Snapshot} */ now) => [count(busy(now)), `of ${count(seats(now))}`], busy],
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
      const [value = '', unit = ''] = said(now, range === 'minute' ? (history.base ?? now) : undefined, range);
      say(tile.value, value);
      say(tile.unit, unit);
      const { line, area } = pathsOf(history.curve(point));
      mark(tile.path, 'd', line);
      mark(tile.area, 'd', area);
    });
  }
}

/**
 * A curve as the paths of its line and of the area below it. Both are broken where there is no value.
 *
 * @param {readonly Point[]} points
 * @returns {{ line: string, area: string }}
 */
export function pathsOf(points) {
  const most = Math.max(1e-9, ...points.map(({ value }) => value ?? 0));
  /** @type {{ x: string, y: string }[][]} */
  const runs = [[]];
  for (const { x, value } of points) {
    if (value === null) runs.push([]);
    else {
      const y = HEIGHT - 1 - (value / most) * (HEIGHT - 3);
      runs.at(-1)?.push({ x: (x * WIDTH).toFixed(1), y: y.toFixed(1) });
    }
  }
  let [line, area] = ['', ''];
  for (const run of runs) {
    const [first, last] = [run[0], run.at(-1)];
    if (!first || !last) continue;
    const path = run.map(({ x, y }) => `${x} ${y}`).join('L');
    // A line to its own place makes a dot of a single point.
    line += run.length === 1 ? `M${path}L${path}` : `M${path}`;
    area += `M${path}L${last.x} ${HEIGHT}L${first.x} ${HEIGHT}Z`;
  }
  return { line, area };
}

/**
 * The start of a rate: a minute ago, or the start of the process. Null: nothing is known of a minute ago.
 *
 * @param {Snapshot} now
 * @param {Snapshot | undefined} before
 * @param {Range} range
 * @param {(snapshot: Snapshot) => number} sum
 * @returns {number | null}
 */
function meanRate(now, before, range, sum) {
  if (range === 'minute') return perSecond(now, before, sum);
  return sum(now) / Math.max(1, now.upMs / 1000);
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
    rate(meanRate(now, before, range, (snapshot) => sum(snapshot) * 60)),
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
 * @returns {number | null}
 */
function curveOfFirst(now, before) {
  return quantile(since(firstTokens(now), before && firstTokens(before)), 0.5);
}
