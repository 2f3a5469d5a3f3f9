/** Rules of the numbers of one sign within bounds, digit by digit. */
import type { Decimal } from './decimals.js';
import type { Alternative, Item } from './rules.js';

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
interface Place {
  /** The digits so far are those of the lower, of the upper bound. */
  readonly low: boolean;
  readonly high: boolean;
  /** What is left over of the digits so far by the step, as far as what follows depends on it; 0 without a step. */
  readonly rest: number;
}

/** The numbers of one sign, without it. */
export class Magnitudes {
  readonly #bounds: Bounds;
  readonly #factor: number;
  readonly #newRule: NewRule;
  /** Digits that are written before and after the point at most. */
  readonly #digits: number;
  readonly #decimals: number;
  /** What follows a place, by the place: undefined: nothing can. */
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

  /** Undefined: there is none. */
  rule(): string | undefined {
    const { least, most } = this.#bounds;
    const shortest = least.whole.length;
    const longest = most?.whole.length ?? this.#digits;
    const alternatives: Alternative[] = [];
    for (let length = shortest; length <= longest; length++) {
      const place = { low: length === shortest, high: most !== undefined && length === longest, rest: 0 };
      alternatives.push(...this.#whole(place, length, length));
    }
    return alternatives.length === 0 ? undefined : this.#newRule(alternatives);
  }

  /** What follows where `left` digits of `length` are still to be written before the point. */
  #whole(place: Place, left: number, length: number): readonly Alternative[] {
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
  #point(place: Place): readonly Alternative[] {
    const ends: Alternative[] = this.#mayEnd(place, 0) ? [[]] : [];
    if (this.#decimals === 0) return ends;
    const tail = this.#once('point', place, () => this.#fraction(place, 0));
    return tail ? [...ends, ['"."', ...tail]] : ends;
  }

  /** What follows `at` digits after the point; nothing may, but after the point itself. */
  #fraction(place: Place, at: number): readonly Alternative[] {
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
    { low: isLow, high: isHigh, rest }: Place,
    { low, high, left }: { readonly low: number; readonly high: number; readonly left: number },
    goOn: (onward: Place) => readonly Item[] | undefined,
  ): Alternative[] {
    const ways = new Map<string, { readonly place: Place; readonly digits: number[] }>();
    for (let digit = low; digit <= high; digit++) {
      const place = this.#onward(rest * 10 + digit, left, isLow && digit === low, isHigh && digit === high);
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

  /** Undefined: no `left` digits more make it a multiple. */
  #onward(value: number, left: number, low: boolean, high: boolean): Place | undefined {
    if (this.#factor === 0) return { low, high, rest: 0 };
    const rest = value % (this.#factor / commonFactor(this.#factor, left));
    const scaled = (BigInt(rest) * 10n ** BigInt(left)) % BigInt(this.#factor);
    const missing = scaled === 0n ? 0n : BigInt(this.#factor) - scaled;
    return missing < 10n ** BigInt(left) ? { low, high, rest } : undefined;
  }

  /** What `make` returns as one alternative, of a rule where there are several; made once for each place. */
  #once(part: string, place: Place, make: () => readonly Alternative[]): readonly Item[] | undefined {
    const known = place.low || place.high ? this.#known : this.#free;
    const key = `${part} of ${this.#decimals} ${keyOf(place)}`;
    if (!known.has(key)) {
      const alternatives = make();
      known.set(key, alternatives.length > 1 ? [{ rule: this.#newRule(alternatives) }] : alternatives[0]);
    }
    return known.get(key);
  }

  /** Whether a number may end after `at` digits after the point. */
  #mayEnd({ low, high, rest }: Place, at: number): boolean {
    const { least, aboveLeast, most, belowMost } = this.#bounds;
    const isLeast = low && least.fraction.length <= at;
    const isMost = high && (most?.fraction.length ?? 0) <= at;
    if ((low && !isLeast) || (isLeast && aboveLeast) || (isMost && belowMost)) return false;
    return this.#factor === 0 || (rest * 10 ** (this.#decimals - at)) % this.#factor === 0;
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

function keyOf({ low, high, rest }: Place): string {
  return `${low} ${high} ${rest}`;
}

/** `all`: ascending, at least one. */
function classOf(all: readonly number[]): string {
  const [first = 0] = all;
  if (all.length === 1) return `"${first}"`;
  const inRow = all.every((digit, i) => digit === first + i);
  return inRow ? `[${first}-${all.at(-1) ?? first}]` : `[${all.join('')}]`;
}
