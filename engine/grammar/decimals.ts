/** Exact decimals, for the bounds of numbers: a JSON number of at most 15 digits is read as the double nearest to it. */

/** A number that is at least 0. */
export interface Decimal {
  /** Digits before the point, without leading zeros: "0" or one that begins with another digit. */
  readonly whole: string;
  /** Digits after the point, without trailing zeros. */
  readonly fraction: string;
}

export const ZERO: Decimal = { whole: '0', fraction: '' };

/** The shortest decimal that is read as this number, without its sign. `value`: finite. */
export function decimalOf(value: number): Decimal {
  const [digits = '', exponent = '0'] = Math.abs(value).toString().split('e');
  const [before = '', fraction = ''] = digits.split('.');
  const point = before.length + Number(exponent);
  const all = `${'0'.repeat(Math.max(0, -point))}${before}${fraction}`.padEnd(point, '0');
  const split = Math.max(0, point);
  return {
    whole: all.slice(0, split).replace(/^0+(?=.)|^$/g, '') || '0',
    fraction: all.slice(split).replace(/0+$/, ''),
  };
}

/** Below 0, 0 or above 0, as `a` is less than, equal to or more than `b`. */
export function compare(a: Decimal, b: Decimal): number {
  if (a.whole.length !== b.whole.length) return a.whole.length - b.whole.length;
  const [left, right] = [`${a.whole}.${a.fraction}`, `${b.whole}.${b.fraction}`];
  return left < right ? -1 : left > right ? 1 : 0;
}

/** The least whole number that is not less. */
export function ceiling({ whole, fraction }: Decimal): Decimal {
  return fraction === '' ? { whole, fraction } : { whole: (BigInt(whole) + 1n).toString(), fraction: '' };
}

/** The largest whole number that is not more. */
export function floor({ whole }: Decimal): Decimal {
  return { whole, fraction: '' };
}

/** Adds one, or subtracts one from a number that is at least 1. `decimal`: whole. */
export function next({ whole }: Decimal, by: 1n | -1n): Decimal {
  return { whole: (BigInt(whole) + by).toString(), fraction: '' };
}
