/**
 * Rules of the JSON numbers within bounds, digit by digit: while the digits written so far are those of a bound, the next
 * one depends on it; as soon as they differ, any digit may follow. Multiples of a number by long division: a digit follows
 * where the remainder still comes to 0.
 */
import type { Alternative, Item } from './rules.js';

/** The largest step, as a whole number after its point is moved, and its largest factor that divides no power of ten. */
const MAX_STEP = 1_000_000;
const MAX_ODD_FACTOR = 16;
/** Steps of the compiler for each remainder of a step, each digit that leads to another one, and each count of digits. */
const REMAINDER_STEPS = 28;
/** Besides, where a number begins and at the digits of its bounds. */
const BOUND_WAYS = 2;

/**
 * The numbers within the range; an empty list: there is none. `whole`: integers alone. Undefined if the range is not
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
  /** Adds the numbers of one sign, between the bounds that have it: undefined, that nearer to 0 is 0. */
  const add = (sign: readonly Item[], near: Bound, far: Bound, outside: Record<'near' | 'far', boolean>): void => {
    const bounds = {
      least: near === undefined ? ZERO : decimalOf(near),
      aboveLeast: near !== undefined && outside.near,
      ...(far !== undefined && { most: decimalOf(far) }),
      belowMost: outside.far,
    };
    const rule = magnitudes(bounds, whole, step, newRule, free);
    if (rule !== undefined) alternatives.push([...sign, rule]);
  };
  const { aboveLeast, belowMost } = range;
  if (high === undefined || high > 0 || (high === 0 && !belowMost))
    add([], low !== undefined && low >= 0 ? low : undefined, high, { near: aboveLeast, far: belowMost });
  if (low === undefined || low < 0)
    add(['"-"'], high !== undefined && high <= 0 ? high : undefined, low, { near: belowMost, far: aboveLeast });
  return alternatives;
}

/** Undefined if it is not enforced. A factor of 0: no step. */
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

/** The same whole numbers, by bounds that are whole and inside. Undefined if there is none. */
function wholeBounds({ least, aboveLeast, most, belowMost }: Bounds): Bounds | undefined {
  const low = aboveLeast && least.fraction === '' ? next(least, 1n) : ceiling(least);
  if (most === undefined) return { least: low, aboveLeast: false, belowMost: false };
  if (belowMost && most.fraction === '' && most.whole === '0') return undefined;
  const high = belowMost && most.fraction === '' ? next(most, -1n) : floor(most);
  return { least: low, aboveLeast: false, most: high, belowMost: false };
}

/** What a schema requires of a number besides its type. */
export interface NumberRange {
  readonly least: number;
  readonly most: number;
  /** The bound itself is outside. */
  readonly aboveLeast: boolean;
  readonly belowMost: boolean;
  /** Each divides the number. */
  readonly steps: readonly number[];
}

export const ANY_NUMBER: NumberRange = {
  least: -Infinity,
  most: Infinity,
  aboveLeast: false,
  belowMost: false,
  steps: [],
};

/** Steps of one value that are kept; further ones, from an allOf, are not enforced. */
const MAX_STEPS = 4;

/** What the keywords of one schema require. In draft 4 the exclusive bounds are booleans. */
export function numberRange(schema: Readonly<Record<string, unknown>>): NumberRange {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
  if ([minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf].every((keyword) => keyword === undefined)) {
    return ANY_NUMBER;
  }
  const ranges: NumberRange[] = [
    { ...ANY_NUMBER, ...(typeof minimum === 'number' && { least: minimum, aboveLeast: exclusiveMinimum === true }) },
    { ...ANY_NUMBER, ...(typeof maximum === 'number' && { most: maximum, belowMost: exclusiveMaximum === true }) },
    { ...ANY_NUMBER, ...(typeof exclusiveMinimum === 'number' && { least: exclusiveMinimum, aboveLeast: true }) },
    { ...ANY_NUMBER, ...(typeof exclusiveMaximum === 'number' && { most: exclusiveMaximum, belowMost: true }) },
    { ...ANY_NUMBER, ...(typeof multipleOf === 'number' && multipleOf > 0 && { steps: [multipleOf] }) },
  ];
  return ranges.reduce(narrowerNumbers);
}

/** What both require. */
export function narrowerNumbers(a: NumberRange, b: NumberRange): NumberRange {
  if (a === ANY_NUMBER || a === b) return b;
  if (b === ANY_NUMBER) return a;
  const least = Math.max(a.least, b.least);
  const most = Math.min(a.most, b.most);
  return {
    least,
    most,
    aboveLeast: (a.least === least && a.aboveLeast) || (b.least === least && b.aboveLeast),
    belowMost: (a.most === most && a.belowMost) || (b.most === most && b.belowMost),
    steps: [...new Set([...a.steps, ...b.steps])].slice(0, MAX_STEPS),
  };
}

/** A number that is at least 0, exactly: a JSON number of at most 15 digits is read as the double nearest to it. */
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

type Bound = number | undefined;

/** Makes a rule and returns its name. */
export type NewRule = (alternatives: readonly Alternative[]) => string;

/** Digits of a whole number, as of any that has no bounds, and of any other: those are read as distinct doubles. */
export const WHOLE_DIGITS = 16;
export const DIGITS = 15;
/** Of multiples of a fraction: a validator divides by it, which is inexact for more. */
export const STEPPED_DIGITS = 12;
const DIGITS_OF_TEN = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

/** A magnitude's bounds. Absent: none. */
export interface Bounds {
  readonly least: Decimal;
  readonly aboveLeast: boolean;
  readonly most?: Decimal;
  readonly belowMost: boolean;
}

/** A step as `factor / 10^decimals`. */
export interface Step {
  readonly factor: number;
  readonly decimals: number;
}

/** Items that follow a place. */
export type Tails = Map<string, readonly Item[] | undefined>;

/** The state of a text that is being written. */
interface DigitState {
  /** The digits so far are those of the lower, of the upper bound. */
  readonly low: boolean;
  readonly high: boolean;
  /** What is left over of the digits so far by the step, as far as what follows depends on it; 0 without a step. */
  readonly remainder: number;
}

/** The numbers of one sign, without it. */
export class Magnitudes {
  readonly #bounds: Bounds;
  readonly #factor: number;
  readonly #newRule: NewRule;
  /** Digits that are written before and after the point at most. */
  readonly #digits: number;
  readonly #decimals: number;
  /** What follows a place, by the place: undefined if nothing can. */
  readonly #known: Tails = new Map();
  /** The same of places that depend on no bound. */
  readonly #free: Tails;

  /** `free`: shared by the numbers of both signs. */
  constructor(bounds: Bounds, whole: boolean, { factor, decimals }: Step, newRule: NewRule, free: Tails) {
    const { least, most = least } = bounds;
    const longest = Math.max(least.whole.length, most.whole.length);
    const finest = Math.max(least.fraction.length, most.fraction.length, DIGITS - longest);
    this.#bounds = bounds;
    this.#factor = whole ? factor / commonFactor(factor, decimals) : factor;
    this.#newRule = newRule;
    this.#free = free;
    this.#digits = whole ? WHOLE_DIGITS : decimals > 0 ? STEPPED_DIGITS - decimals : DIGITS;
    this.#decimals = whole ? 0 : factor > 0 ? decimals : Math.min(WHOLE_DIGITS, finest);
  }

  /** Undefined if there is none. */
  rule(): string | undefined {
    const { least, most } = this.#bounds;
    const shortest = least.whole.length;
    const longest = most?.whole.length ?? this.#digits;
    const alternatives: Alternative[] = [];
    for (let length = shortest; length <= longest; length++) {
      const place = { low: length === shortest, high: most !== undefined && length === longest, remainder: 0 };
      alternatives.push(...this.#whole(place, length, length));
    }
    return alternatives.length === 0 ? undefined : this.#newRule(alternatives);
  }

  /** What follows where `left` digits of `length` are still to be written before the point. */
  #whole(place: DigitState, left: number, length: number): readonly Alternative[] {
    if (left === 0) return this.#point(place);
    const at = length - left;
    const { least, most } = this.#bounds;
    const first = at === 0 && length > 1 ? 1 : 0;
    const low = place.low ? Number(least.whole[at]) : first;
    const high = place.high ? Number(most?.whole[at]) : 9;
    if (!place.low && !place.high && this.#factor === 0) {
      const rest: Item[] = left > 1 ? [`[0-9]{${left - 1}}`] : [];
      return this.#point(place).map((tail) => [classOf(DIGITS_OF_TEN.slice(low)), ...rest, ...tail]);
    }
    return this.#each(place, { low, high, left: left - 1 + this.#decimals }, (onward) =>
      this.#once(`whole ${left}`, onward, () => this.#whole(onward, left - 1, length)),
    );
  }

  /** What follows the digits before the point. */
  #point(place: DigitState): readonly Alternative[] {
    const ends: Alternative[] = this.#mayEnd(place, 0) ? [[]] : [];
    if (this.#decimals === 0) return ends;
    const tail = this.#once('point', place, () => this.#fraction(place, 0));
    return tail ? [...ends, ['"."', ...tail]] : ends;
  }

  /** What follows `at` digits after the point; nothing may, but after the point itself. */
  #fraction(place: DigitState, at: number): readonly Alternative[] {
    const ends: Alternative[] = at > 0 && this.#mayEnd(place, at) ? [[]] : [];
    const left = this.#decimals - at;
    if (left === 0) return ends;
    const { least, aboveLeast, most } = this.#bounds;
    const some = at === 0 ? 1 : 0;
    // The upper bound is reached: zeros alone may follow.
    if (place.high && (most?.fraction.length ?? 0) <= at) {
      return this.#mayEnd(place, at) ? [[`"0"{${some},${left}}`]] : [];
    }
    const atLeast = place.low && least.fraction.length <= at;
    if (this.#factor === 0 && !place.high && (!place.low || atLeast)) {
      if (!place.low || !aboveLeast) return [[`[0-9]{${some},${left}}`]];
      return left === 1 ? [['[1-9]']] : [[`"0"{0,${left - 1}}`, '[1-9]', `[0-9]{0,${left - 1}}`]];
    }
    const low = place.low ? Number(least.fraction[at] ?? 0) : 0;
    const high = place.high ? Number(most?.fraction[at]) : 9;
    const onward = this.#each(place, { low, high, left: left - 1 }, (next) =>
      this.#once(`fraction ${at}`, next, () => this.#fraction(next, at + 1)),
    );
    return [...ends, ...onward];
  }

  /** A digit from `low` to `high`, then what `goOn` returns. `left`: digits that may follow at most. */
  #each(
    { low: isLow, high: isHigh, remainder }: DigitState,
    { low, high, left }: { readonly low: number; readonly high: number; readonly left: number },
    goOn: (onward: DigitState) => readonly Item[] | undefined,
  ): Alternative[] {
    const ways = new Map<string, { readonly place: DigitState; readonly digits: number[] }>();
    for (let digit = low; digit <= high; digit++) {
      const place = this.#onward(remainder * 10 + digit, left, isLow && digit === low, isHigh && digit === high);
      if (place === undefined) continue;
      const key = keyOf(place);
      const way = ways.get(key);
      if (way) way.digits.push(digit);
      else ways.set(key, { place, digits: [digit] });
    }
    return [...ways.values()].flatMap(({ place, digits }): Alternative[] => {
      const tail = goOn(place);
      return tail ? [[classOf(digits), ...tail]] : [];
    });
  }

  /** Undefined if no `left` digits more make it a multiple. */
  #onward(value: number, left: number, low: boolean, high: boolean): DigitState | undefined {
    if (this.#factor === 0) return { low, high, remainder: 0 };
    const remainder = value % (this.#factor / commonFactor(this.#factor, left));
    const scaled = (BigInt(remainder) * 10n ** BigInt(left)) % BigInt(this.#factor);
    const missing = scaled === 0n ? 0n : BigInt(this.#factor) - scaled;
    return missing < 10n ** BigInt(left) ? { low, high, remainder } : undefined;
  }

  /** What `make` returns as one alternative, of a rule where there are several; made once for each place. */
  #once(part: string, place: DigitState, make: () => readonly Alternative[]): readonly Item[] | undefined {
    const known = place.low || place.high ? this.#known : this.#free;
    const key = `${part} of ${this.#decimals} ${keyOf(place)}`;
    if (!known.has(key)) {
      const alternatives = make();
      known.set(key, alternatives.length > 1 ? [{ rule: this.#newRule(alternatives) }] : alternatives[0]);
    }
    return known.get(key);
  }

  /** Whether a number may end after `at` digits after the point. */
  #mayEnd({ low, high, remainder }: DigitState, at: number): boolean {
    const { least, aboveLeast, most, belowMost } = this.#bounds;
    const isLeast = low && least.fraction.length <= at;
    const isMost = high && (most?.fraction.length ?? 0) <= at;
    if ((low && !isLeast) || (isLeast && aboveLeast) || (isMost && belowMost)) return false;
    return this.#factor === 0 || (remainder * 10 ** (this.#decimals - at)) % this.#factor === 0;
  }
}

/** What divides both `factor` and a power of ten with so many zeros. */
function commonFactor(factor: number, zeros: number): number {
  let common = 1;
  for (const prime of [2, 5]) {
    for (let left = factor, i = 0; left % prime === 0 && i < zeros && left > 0; i++) {
      left /= prime;
      common *= prime;
    }
  }
  return common;
}

function keyOf({ low, high, remainder }: DigitState): string {
  return `${low} ${high} ${remainder}`;
}

/** `all`: ascending, at least one. */
function classOf(all: readonly number[]): string {
  const [first = 0] = all;
  if (all.length === 1) return `"${first}"`;
  const inRow = all.every((digit, i) => digit === first + i);
  return inRow ? `[${first}-${all.at(-1) ?? first}]` : `[${all.join('')}]`;
}
