// The snapshots of the last two minutes, and the differences between them: the sidecar sends counts since its start,
// and the page computes rates.

/** @typedef {import('../views.js').Snapshot} Snapshot */
/** @typedef {import('../views.js').ModelView} ModelView */
/** @typedef {import('../views.js').HistogramView} Histogram */

/**
 * A point of a curve.
 *
 * @typedef {object} Point
 * @property {number} x Its time, from 0, the earliest that is kept, to 1, now.
 * @property {number | null} value Null: there was none.
 */

/** How long snapshots are kept, and the length of the last minute, ms. */
const KEPT_MS = 120_000;
const MINUTE_MS = 60_000;

/** From this time on a span counts as a minute, ms: the longest interval of snapshots is 10 s. */
const NEARLY_MINUTE_MS = 49_000;

/** The most snapshots, whatever their interval. */
const MOST = 500;

/** Points of a small curve. */
const POINTS = 60;

export class History {
  /** @type {Snapshot[]} */
  #all = [];

  /** @param {Snapshot} snapshot */
  add(snapshot) {
    // A new process counts from zero; and if the sidecar's clock was set back, the age of earlier snapshots is unknown.
    const last = this.#all.at(-1);
    if (last && (last.startedAt !== snapshot.startedAt || last.at > snapshot.at)) this.#all = [];
    this.#all.push(snapshot);
    while (this.#all.length > MOST || (this.#all[0]?.at ?? Infinity) < snapshot.at - KEPT_MS) this.#all.shift();
  }

  /**
   * The oldest snapshot within the last minute, from which it is counted. Undefined before there is a second one.
   *
   * @returns {Snapshot | undefined}
   */
  get base() {
    const last = this.#all.at(-1);
    if (!last) return undefined;
    const found = this.#all.find(({ at }) => at >= last.at - MINUTE_MS);
    return found === last ? undefined : found;
  }

  /**
   * The time since {@link base}, in words: a page that was just opened knows less than a minute.
   *
   * @returns {string}
   */
  get span() {
    const { base } = this;
    const ms = base ? (this.#all.at(-1)?.at ?? base.at) - base.at : 0;
    return ms < NEARLY_MINUTE_MS ? `last ${Math.round(ms / 1000)} s` : 'last minute';
  }

  /**
   * A value of one snapshot in each of the even parts of the time that is kept, for a curve.
   *
   * @param {(snapshot: Snapshot, before: Snapshot | undefined) => number | null} value
   * @returns {Point[]}
   */
  curve(value) {
    const last = this.#all.at(-1);
    if (!last) return [];
    const step = KEPT_MS / POINTS;
    /** @type {(Snapshot | undefined)[]} */
    const slots = Array.from({ length: POINTS + 1 });
    for (const snapshot of this.#all) slots[POINTS - Math.floor((last.at - snapshot.at) / step)] = snapshot;
    /** @type {Point[]} */
    const points = [];
    /** @type {Snapshot | undefined} */
    let before;
    for (const snapshot of slots) {
      if (!snapshot) continue;
      if (before) points.push({ x: 1 - (last.at - snapshot.at) / KEPT_MS, value: value(snapshot, before) });
      before = snapshot;
    }
    return points;
  }
}

/**
 * The increase of a count per second between two snapshots. Null: there is no time between them.
 *
 * @param {Snapshot} now
 * @param {Snapshot | undefined} before
 * @param {(snapshot: Snapshot) => number} total
 * @returns {number | null}
 */
export function perSecond(now, before, total) {
  if (!before || now.at <= before.at) return null;
  return Math.max(0, total(now) - total(before)) / ((now.at - before.at) / 1000);
}

/**
 * @param {Snapshot} snapshot
 * @param {(model: ModelView) => number} value
 * @returns {number}
 */
export function overModels(snapshot, value) {
  return snapshot.models.reduce((sum, model) => sum + value(model), 0);
}

/**
 * @param {Readonly<Record<string, number>>} counts
 * @returns {number}
 */
export function total(counts) {
  return Object.values(counts).reduce((sum, value) => sum + value, 0);
}

/**
 * The values of a histogram since `before`; without it, since the start.
 *
 * @param {Histogram} now
 * @param {Histogram | undefined} before
 * @returns {Histogram}
 */
export function since(now, before) {
  if (!before || before.counts.length !== now.counts.length) return now;
  return {
    bounds: now.bounds,
    counts: now.counts.map((value, i) => value - (before.counts[i] ?? 0)),
    sum: now.sum - before.sum,
  };
}

/**
 * The quantile, interpolated linearly between two bounds like Prometheus' histogram_quantile; past the last bound that
 * bound. Null: there are no values.
 *
 * @param {Histogram} histogram
 * @param {number} share
 * @returns {number | null}
 */
export function quantile({ bounds, counts }, share) {
  const all = counts.at(-1) ?? 0;
  if (all === 0) return null;
  const rank = share * all;
  const at = counts.findIndex((value) => value >= rank);
  const upper = bounds[at];
  if (upper === undefined) return bounds.at(-1) ?? null;
  const lower = bounds[at - 1] ?? 0;
  const below = counts[at - 1] ?? 0;
  const inside = (counts[at] ?? 0) - below;
  return inside === 0 ? upper : lower + ((upper - lower) * (rank - below)) / inside;
}

/**
 * The histograms of several models as one; their bounds are the same.
 *
 * @param {readonly Histogram[]} all
 * @returns {Histogram}
 */
export function merged(all) {
  const [first = { bounds: [], counts: [], sum: 0 }, ...others] = all;
  return others.reduce(
    (sum, next) => ({
      bounds: sum.bounds,
      counts: sum.counts.map((value, i) => value + (next.counts[i] ?? 0)),
      sum: sum.sum + next.sum,
    }),
    first,
  );
}
