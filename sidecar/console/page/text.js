// Formats numbers, briefly, since most are in narrow columns, and says how a store of a fleet is.

/**
 * @param {number} ms
 * @returns {string}
 */
export function duration(ms) {
  if (ms < 1) return ms <= 0 ? '0 ms' : `${ms.toFixed(2)} ms`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

/**
 * How long something has lasted, in whole seconds or coarser.
 *
 * @param {number} ms
 * @returns {string}
 */
export function age(ms) {
  return ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : duration(ms);
}

/**
 * @param {number | null} seconds
 * @returns {string}
 */
export function seconds(seconds) {
  return seconds === null ? '–' : duration(seconds * 1000);
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/**
 * @param {number | null} bytes
 * @returns {string}
 */
export function bytes(bytes) {
  if (bytes === null) return '–';
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit] ?? ''}`;
}

const WHOLE = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

/**
 * @param {number | null} value
 * @returns {string}
 */
export function count(value) {
  return value === null ? '–' : WHOLE.format(value);
}

/**
 * A rate: with a decimal while it is small.
 *
 * @param {number | null} value
 * @returns {string}
 */
export function rate(value) {
  if (value === null) return '–';
  return value > 0 && value < 9.95 ? value.toFixed(1) : WHOLE.format(value);
}

/**
 * US dollars: cents, or two digits of what is less than that.
 *
 * @param {number} value
 * @returns {string}
 */
export function dollars(value) {
  if (value === 0 || value >= 0.995)
    return `$${value.toLocaleString('en', { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
  return `$${value.toLocaleString('en', { maximumSignificantDigits: 2, maximumFractionDigits: 12 })}`;
}

/**
 * A number with its noun: `1 seat`, `2 seats`.
 *
 * @param {number} value
 * @param {string} noun
 * @returns {string}
 */
export function some(value, noun) {
  return `${WHOLE.format(value)} ${noun}${value === 1 ? '' : 's'}`;
}

/**
 * What the page says of a fleet's store: name, value and tone.
 *
 * @param {NonNullable<import('../views.js').Snapshot['fleet']>} fleet
 * @returns {readonly [name: string, value: string, tone: string]}
 */
export function storeFact({ state, sidecars, lateSeconds }) {
  if (state === 'fenced') return ['Store', 'fenced: another process has this place', 'bad'];
  if (state === 'apart') return ['Store', 'does not answer', 'bad'];
  // Charges are posted four times a second.
  const isLate = lateSeconds > 2;
  const late = isLate ? `, charges have waited for ${duration(lateSeconds * 1000)}` : '';
  return ['Store', `shared by ${some(sidecars ?? 1, 'sidecar')}${late}`, isLate ? 'warn' : 'good'];
}
