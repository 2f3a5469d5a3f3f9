/**
 * Chance with a seed, and the wall between training and evaluation: of every list that `pick` draws from, each fifth item is
 * kept for evaluation. So held-out examples have wordings and names that no training example has, by construction.
 */
export type Split = 'train' | 'held';

/** Lists shorter than this are shared: keeping one of three words back would leave nothing to learn it from. */
const SHORTEST_SPLIT = 5;

/** The part of a list that a split may draw from. */
export function partOf<T>(list: readonly T[], split: Split): readonly T[] {
  if (list.length < SHORTEST_SPLIT) return list;
  return list.filter((_, at) => (at % SHORTEST_SPLIT === SHORTEST_SPLIT - 1) === (split === 'held'));
}

/** A stream of choices; the same for the same seed. Owned by one generator at a time. */
export class Draw {
  readonly split: Split;
  #state: number;

  /** `seed`: 32 unsigned bits. */
  constructor(seed: number, split: Split) {
    this.#state = seed >>> 0;
    this.split = split;
  }

  /** 0 to below 1 (mulberry32). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  }

  /** A whole number from `low` to `high`, both included. */
  int(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** An item that this split may use. */
  pick<T>(list: readonly T[]): T {
    return this.any(partOf(list, this.split));
  }

  /** Any item: for what must be known and cannot be guessed, such as that a pear is a fruit. */
  any<T>(list: readonly T[]): T {
    const item = list[Math.floor(this.next() * list.length)];
    if (item === undefined) throw new RangeError('nothing to draw from');
    return item;
  }

  shuffle<T>(list: readonly T[]): T[] {
    const out = [...list];
    for (let at = out.length - 1; at > 0; at--) {
      const other = this.int(0, at);
      [out[at], out[other]] = [out[other] as T, out[at] as T];
    }
    return out;
  }

  /** `count` different items, or all there are. */
  some<T>(list: readonly T[], count: number): T[] {
    return this.shuffle(list).slice(0, count);
  }

  /** `count` different items that this split may use. */
  picks<T>(list: readonly T[], count: number): T[] {
    return this.some(partOf(list, this.split), count);
  }
}
