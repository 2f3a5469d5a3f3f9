/** Bins of a histogram of times: the first ends here, ms, and each other one is wider than the one before by this factor. */
const FIRST_MS = 50;
const RATIO = 1.16;
/** The last bin begins at 9 minutes, which is longer than the OpenAI clients wait for a reply where they set no time. */
const BINS = 64;

const LOG_RATIO = Math.log(RATIO);

/** Weights grow with time instead of all earlier ones shrinking; past this they are brought back to 1. */
const LARGEST_WEIGHT = 1e9;

/** Where each bin ends, ms. */
export const BIN_ENDS: readonly number[] = Array.from({ length: BINS }, (_, bin) => FIRST_MS * RATIO ** bin);

/** The bin of a time, ms. */
export function binOf(ms: number): number {
  return ms < FIRST_MS ? 0 : Math.min(BINS - 1, 1 + Math.floor(Math.log(ms / FIRST_MS) / LOG_RATIO));
}

/** What holds before the first fit, shared by all that were never fitted. */
const NONE_LEAVE = new Float32Array(BINS);
const ALL_STAY = new Float32Array(BINS).fill(1);
const ALL_THERE = Float32Array.from(BIN_ENDS);

/** Hazards that are believed before anything is seen: the chance of leaving in each bin, and how many callers that counts as. */
export interface Prior {
  readonly callers: number;
  /** Undefined: no caller leaves. */
  readonly hazardOf: ((bin: number) => number) | undefined;
}

/**
 * How long callers wait before they leave, by the product-limit estimator (E. Kaplan and P. Meier, 1958) over bins: the
 * chance of leaving in a bin is those who left in it over those who were still there at its begin. A caller who was served
 * counts as there until then and is not counted after it (censored). What was seen loses half its weight every `halfMs`.
 * Memory: two numbers a bin, five once
 * it was fitted.
 */
export class Survival {
  readonly #left = new Float32Array(BINS);
  readonly #stayed = new Float32Array(BINS);
  #hazards = NONE_LEAVE;
  /** The chance of being there still at the end of each bin. */
  #survivals = ALL_STAY;
  /** Time until the end of each bin that a caller is there for on average, ms. */
  #there = ALL_THERE;
  #weight = 1;
  #at = 0;
  #count = 0;
  #leavers = 0;

  /** What was seen, each with the weight that it has at `now`. */
  count(now: number, halfMs: number): number {
    this.#age(now, halfMs);
    return this.#count / this.#weight;
  }

  /** Of these, who left. */
  leavers(now: number, halfMs: number): number {
    this.#age(now, halfMs);
    return this.#leavers / this.#weight;
  }

  /** A caller left after `ms`, or was served or refused then. */
  observe(now: number, halfMs: number, { ms, left }: { readonly ms: number; readonly left: boolean }): void {
    this.#age(now, halfMs);
    const bin = binOf(ms);
    const bins = left ? this.#left : this.#stayed;
    bins[bin] = (bins[bin] ?? 0) + this.#weight;
    this.#count += this.#weight;
    if (left) this.#leavers += this.#weight;
  }

  /** Adds what `other` has seen, each with so much of its weight; with less than 0 it is taken away. O(bins). */
  add(now: number, halfMs: number, other: Survival, part: number): void {
    this.#age(now, halfMs);
    other.#age(now, halfMs);
    const scale = (part * this.#weight) / other.#weight;
    // Less than 0 remains by rounding only, and where the two forgot at different speeds.
    const plus = (value = 0, more = 0): number => Math.max(0, value + scale * more);
    for (let bin = 0; bin < BINS; bin += 1) {
      this.#left[bin] = plus(this.#left[bin], other.#left[bin]);
      this.#stayed[bin] = plus(this.#stayed[bin], other.#stayed[bin]);
    }
    this.#count = plus(this.#count, other.#count);
    this.#leavers = plus(this.#leavers, other.#leavers);
  }

  /** Computes the probabilities again. O(bins). */
  fit(now: number, halfMs: number, { callers, hazardOf }: Prior): void {
    this.#age(now, halfMs);
    if (this.#hazards === NONE_LEAVE) {
      this.#hazards = new Float32Array(BINS);
      this.#survivals = new Float32Array(BINS);
      this.#there = new Float32Array(BINS);
    }
    const believed = callers * this.#weight;
    let atRisk = 0;
    for (let bin = BINS - 1; bin >= 0; bin -= 1) {
      const left = this.#left[bin] ?? 0;
      const stayed = this.#stayed[bin] ?? 0;
      // Those who were served in this bin were there for half of it.
      const there = atRisk + left + stayed / 2 + believed;
      this.#hazards[bin] = there > 0 ? (left + believed * (hazardOf?.(bin) ?? 0)) / there : 0;
      atRisk += left + stayed;
    }
    let survival = 1;
    let from = 0;
    let there = 0;
    for (let bin = 0; bin < BINS; bin += 1) {
      const before = survival;
      const to = BIN_ENDS[bin] ?? 0;
      survival *= 1 - (this.#hazards[bin] ?? 0);
      this.#survivals[bin] = survival;
      there += ((before + survival) / 2) * (to - from);
      this.#there[bin] = there;
      from = to;
    }
  }

  /** Of those who are there at its begin, the share that leaves in a bin; as of the last fit. */
  hazardOf(bin: number): number {
    return this.#hazards[bin] ?? 0;
  }

  /** The share of callers that waits longer than `ms`, as of the last fit; between two bin ends in a straight line. */
  after(ms: number): number {
    const bin = binOf(ms);
    const from = bin === 0 ? 0 : (BIN_ENDS[bin - 1] ?? 0);
    const to = BIN_ENDS[bin] ?? Infinity;
    const before = bin === 0 ? 1 : (this.#survivals[bin - 1] ?? 0);
    const behind = this.#survivals[bin] ?? 0;
    return before + (behind - before) * Math.min(1, (ms - from) / (to - from));
  }

  /** The share that was not seen to leave, and when the last that was left, ms; as of the last fit. */
  get last(): { readonly share: number; readonly ms: number } {
    const share = this.#survivals[BINS - 1] ?? 1;
    const bin = this.#survivals.findIndex((survival) => survival <= share);
    return { share, ms: BIN_ENDS[bin] ?? 0 };
  }

  /** How much of the time until `ms` a caller is there for on average, ms; as of the last fit. */
  thereFor(ms: number): number {
    const bin = binOf(ms);
    const from = bin === 0 ? 0 : (BIN_ENDS[bin - 1] ?? 0);
    const before = bin === 0 ? 0 : (this.#there[bin - 1] ?? 0);
    const span = (BIN_ENDS[bin] ?? 0) - from;
    return before + ((this.#there[bin] ?? 0) - before) * Math.min(1, (ms - from) / span);
  }

  /**
   * The time that this share of callers has left by, ms, between two bin ends in a straight line; undefined: fewer leave than
   * that, as far as is known.
   */
  timeOf(share: number): number | undefined {
    const bin = this.#survivals.findIndex((survival) => survival <= 1 - share);
    if (bin < 0) return undefined;
    const from = bin === 0 ? 0 : (BIN_ENDS[bin - 1] ?? 0);
    const before = bin === 0 ? 1 : (this.#survivals[bin - 1] ?? 0);
    const behind = this.#survivals[bin] ?? 0;
    return from + ((before - (1 - share)) / (before - behind)) * ((BIN_ENDS[bin] ?? 0) - from);
  }

  #age(now: number, halfMs: number): void {
    const passed = now - this.#at;
    if (passed <= 0) return;
    this.#at = now;
    this.#weight *= 2 ** Math.min(passed / halfMs, 60);
    if (this.#weight < LARGEST_WEIGHT) return;
    for (let bin = 0; bin < BINS; bin += 1) {
      this.#left[bin] = (this.#left[bin] ?? 0) / this.#weight;
      this.#stayed[bin] = (this.#stayed[bin] ?? 0) / this.#weight;
    }
    this.#count /= this.#weight;
    this.#leavers /= this.#weight;
    this.#weight = 1;
  }
}
