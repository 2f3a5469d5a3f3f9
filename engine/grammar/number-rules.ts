/**
 * Rules of the JSON numbers within bounds, digit by digit: while the digits written so far are those of a bound, the next
 * one depends on it; as soon as they differ, any digit may follow. Multiples of a number by long division: a digit follows
 * where the remainder still comes to 0.
 */
import { ceiling, compare, decimalOf, floor, next, ZERO } from './decimals.js';
import {
  DIGITS,
  Magnitudes,
  STEPPED_DIGITS,
  WHOLE_DIGITS,
  type Bounds,
  type NewRule,
  type Step,
  type Tails,
} from './magnitudes.js';
import type { NumberRange } from './number-range.js';
import type { Alternative, Item } from './rules.js';

/** The largest step, as a whole number after its point is moved, and its largest factor that divides no power of ten. */
const MAX_STEP = 1_000_000;
const MAX_ODD_FACTOR = 16;
/** Steps of the compiler for each remainder of a step, each digit that leads to another one, and each count of digits. */
const REMAINDER_STEPS = 28;
/** Besides, where a number begins and at the digits of its bounds. */
const BOUND_WAYS = 2;

/**
 * The numbers within the range; an empty list: there is none. `whole`: integers alone. Undefined: the range is not
 * enforced, since a bound has more digits than are written, or a step is too fine or takes more steps of the compiler
 * than `mayTake` allows. Numbers are written without exponents.
 */
export function numberRules(
  range: NumberRange,
  whole: boolean,
  newRule: NewRule,
  mayTake: (steps: number) => boolean,
): readonly Alternative[] | undefined {
  const { least, most } = range;
  const step = stepOf(range.steps);
  if (step === undefined) return undefined;
  // Bounds past all digits are none; what lies past them cannot be written.
  const limit = 10 ** (whole ? WHOLE_DIGITS : DIGITS);
  if (least >= limit || most <= -limit) return undefined;
  const low = least <= -limit ? undefined : least;
  const high = most >= limit ? undefined : most;
  if (low === undefined && high === undefined && step.factor === 0) return undefined;
  // Before the point of multiples of a fraction.
  const longest = whole || step.decimals === 0 ? Infinity : STEPPED_DIGITS - step.decimals;
  if (longest < 1 || [low, high].some((bound = 0) => decimalOf(bound).whole.length > longest)) return undefined;
  const digits = low === undefined || high === undefined ? WHOLE_DIGITS : lengthOf(low, high);
  if (step.factor > 0 && !mayTake(stepsOf(step, digits))) return undefined;
  const alternatives: Alternative[] = [];
  const free: Tails = new Map();
  if (high === undefined || high > 0 || (high === 0 && !range.belowMost)) {
    const positive = low !== undefined && low >= 0;
    const rule = magnitudes(
      {
        least: positive ? decimalOf(low) : ZERO,
        aboveLeast: positive && range.aboveLeast,
        ...(high !== undefined && { most: decimalOf(high) }),
        belowMost: range.belowMost,
      },
      whole,
      step,
      newRule,
      free,
    );
    if (rule !== undefined) alternatives.push([rule]);
  }
  if (low === undefined || low < 0) {
    const negative = high !== undefined && high <= 0;
    const rule = magnitudes(
      {
        least: negative ? decimalOf(high) : ZERO,
        aboveLeast: negative && range.belowMost,
        ...(low !== undefined && { most: decimalOf(low) }),
        belowMost: range.aboveLeast,
      },
      whole,
      step,
      newRule,
      free,
    );
    if (rule !== undefined) alternatives.push(['"-"', rule]);
  }
  return alternatives;
}

/** Undefined: not enforced. A factor of 0: no step. */
function stepOf(steps: readonly number[]): Step | undefined {
  const [step, ...others] = steps;
  if (step === undefined) return { factor: 0, decimals: 0 };
  const { whole, fraction } = decimalOf(step);
  const factor = Number(`${whole}${fraction}`);
  if (others.length > 0 || factor > MAX_STEP || oddPart(factor) > MAX_ODD_FACTOR) return undefined;
  return { factor, decimals: fraction.length };
}

function lengthOf(...bounds: readonly number[]): number {
  return Math.max(...bounds.map((bound) => decimalOf(bound).whole.length));
}

/** About the steps of the compiler for multiples of so many digits before the point. */
function stepsOf({ factor, decimals }: Step, digits: number): number {
  const remainders = oddPart(factor);
  const ways = remainders * Math.min(remainders, 10);
  return REMAINDER_STEPS * (BOUND_WAYS + ways) * (digits + decimals);
}

function oddPart(factor: number): number {
  let odd = factor;
  for (const prime of [2, 5]) while (odd % prime === 0) odd /= prime;
  return odd;
}

function magnitudes(given: Bounds, whole: boolean, step: Step, newRule: NewRule, free: Tails): Item | undefined {
  const bounds = whole ? wholeBounds(given) : given;
  if (bounds === undefined) return undefined;
  if (bounds.most) {
    const order = compare(bounds.least, bounds.most);
    if (order > 0 || (order === 0 && (bounds.aboveLeast || bounds.belowMost))) return undefined;
  }
  const rule = new Magnitudes(bounds, whole, step, newRule, free).rule();
  return rule === undefined ? undefined : { rule };
}

/** The same whole numbers, by bounds that are whole and inside. Undefined: there is none. */
function wholeBounds({ least, aboveLeast, most, belowMost }: Bounds): Bounds | undefined {
  const low = aboveLeast && least.fraction === '' ? next(least, 1n) : ceiling(least);
  if (most === undefined) return { least: low, aboveLeast: false, belowMost: false };
  if (belowMost && most.fraction === '' && most.whole === '0') return undefined;
  const high = belowMost && most.fraction === '' ? next(most, -1n) : floor(most);
  return { least: low, aboveLeast: false, most: high, belowMost: false };
}
