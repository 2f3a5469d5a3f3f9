import { programOf } from './program.js';
import { DEAD, Reach } from './reach.js';

/** The tokens of a vocabulary, in the order of their bytes. */
export interface SortedTokens {
  readonly bytes: Uint8Array;
  /** Where each token's bytes begin, by id; one more for the end of the last. */
  readonly starts: Uint32Array;
  /** Ids of those that have bytes. */
  readonly order: Uint32Array;
  /** Bytes that each has in common with the one before it in `order`. */
  readonly common: Uint32Array;
  /** Ids of those that have none, but for `ends`. */
  readonly empty: Uint32Array;
  /** End tokens, whatever their bytes. */
  readonly ends: Uint32Array;
  /** Of the longest. */
  readonly longest: number;
}

export function sortedTokens(bytes: Uint8Array, starts: Uint32Array, ends: Uint32Array): SortedTokens {
  const ending = new Set(ends);
  const ids = Uint32Array.from({ length: starts.length - 1 }, (_, id) => id).filter((id) => !ending.has(id));
  const of = (id: number): Uint8Array => bytes.subarray(starts[id], starts[id + 1]);
  // llama.cpp treats tokens that begin with U+0000 as empty.
  const isEmpty = (id: number): boolean => starts[id] === starts[id + 1] || bytes[starts[id] ?? 0] === 0;
  const order = ids.filter((id) => !isEmpty(id)).sort((a, b) => Buffer.compare(of(a), of(b)));
  let longest = 0;
  const common = order.map((id, i) => {
    const [one, before] = [of(id), i === 0 ? new Uint8Array(0) : of(order[i - 1] ?? 0)];
    longest = Math.max(longest, one.length);
    let same = 0;
    while (same < before.length && one[same] === before[same]) same += 1;
    return same;
  });
  return { bytes, starts, order, common, empty: ids.filter(isEmpty), ends, longest };
}

/** The position of a text in a grammar: a set of places, and the beginning of a character that a token ended in. */
export interface Standing {
  readonly reach: Reach;
  readonly set: number;
  /** Bits of the character so far, and bytes that it still lacks. */
  readonly begun: number;
  readonly lacks: number;
}

/**
 * Numbers that the {@link Reach} of all grammars may keep, 4 to 40 bytes each; one that exceeds its share is rebuilt
 * from the current texts.
 */
export const MAX_REACH = 4_000_000;
/** No grammar's share is less. */
const LEAST_REACH = 100_000;
/** Masks kept for all grammars, the last used ones; half a megabyte each with a vocabulary of 128 k tokens. */
export const MAX_MASKS = 64;

export interface MaskLimits {
  /** Places that one call may visit. */
  readonly work: number;
  /** This grammar's share of the memory for all grammars. */
  readonly share: () => number;
}

/** Computes which tokens a grammar allows. Positions of texts in it are the caller's {@link Standing}s. */
export class MaskGrammar {
  readonly #tokens: SortedTokens;
  readonly #limits: MaskLimits;
  #reach: Reach;
  readonly #masks = new Map<number, Uint32Array>();
  /** By bytes of a token read so far. */
  readonly #sets: Int32Array;
  readonly #begun: Int32Array;
  readonly #lacks: Int32Array;

  private constructor(reach: Reach, tokens: SortedTokens, limits: MaskLimits) {
    this.#reach = reach;
    this.#tokens = tokens;
    this.#limits = limits;
    this.#sets = new Int32Array(tokens.longest + 1);
    this.#begun = new Int32Array(tokens.longest + 1);
    this.#lacks = new Int32Array(tokens.longest + 1);
  }

  /** Undefined: it cannot be read. Throws `TooDear`. */
  static of(gbnf: string, tokens: SortedTokens, limits: MaskLimits): MaskGrammar | undefined {
    const program = programOf(gbnf);
    return program && new MaskGrammar(new Reach(program, limits.work), tokens, limits);
  }

  /** Before any text. */
  get start(): Standing {
    return { reach: this.#reach, set: this.#reach.start, begun: 0, lacks: 0 };
  }

  /** After a token that is not an end token; undefined: it is not allowed. Throws `TooDear`. */
  after(standing: Standing, token: number): Standing | undefined {
    const { bytes, starts } = this.#tokens;
    this.#enter(this.#here(standing));
    let depth = 0;
    for (const byte of bytes.subarray(starts[token], starts[token + 1])) {
      if (this.#isDeadBehind(depth, byte)) return undefined;
      depth += 1;
    }
    const set = this.#sets[depth] ?? DEAD;
    const begun = this.#begun[depth] ?? 0;
    const lacks = this.#lacks[depth] ?? 0;
    return { reach: this.#reach, set, begun, lacks };
  }

  /** The tokens that are not allowed next, ascending within each kind. Must not be changed. Throws `TooDear`. */
  denied(standing: Standing): Uint32Array {
    const here = this.#here(standing);
    const known = here.lacks === 0 ? this.#masks.get(here.set) : undefined;
    const made = known ?? this.#denied(here);
    if (here.lacks > 0) return made;
    this.#masks.delete(here.set);
    this.#masks.set(here.set, made);
    const [oldest] = this.#masks.keys();
    if (this.#masks.size > Math.max(1, MAX_MASKS * this.#limits.share()) && oldest !== undefined) {
      this.#masks.delete(oldest);
    }
    return made;
  }

  #denied(here: Standing): Uint32Array {
    const { bytes, starts, order, common, empty, ends } = this.#tokens;
    const denied = new Uint32Array(starts.length - 1);
    let count = 0;
    const deny = (token: number): void => {
      denied[count++] = token;
    };
    this.#enter(here);
    /** So many bytes in, no token of those read last may come. */
    let dead = Infinity;
    for (let i = 0; i < order.length; i++) {
      const token = order[i] ?? 0;
      const from = common[i] ?? 0;
      if (from >= dead) {
        deny(token);
        continue;
      }
      dead = Infinity;
      const start = starts[token] ?? 0;
      const length = (starts[token + 1] ?? 0) - start;
      let depth = from;
      while (depth < length && !this.#isDeadBehind(depth, bytes[start + depth] ?? 0)) depth += 1;
      if (depth < length) dead = depth + 1;
      if (depth < length || !this.#mayStop(depth)) deny(token);
    }
    empty.forEach(deny);
    if (!this.#reach.mayEnd(here.set) || here.lacks > 0) ends.forEach(deny);
    return denied.slice(0, count);
  }

  /** The same text in the current reach, which is rebuilt if it has grown too large. */
  #here(standing: Standing): Standing {
    const { work, share } = this.#limits;
    this.#reach.grant(work);
    if (this.#reach.size > Math.max(LEAST_REACH, MAX_REACH * share())) {
      this.#reach = new Reach(this.#reach.program, work);
      this.#masks.clear();
    }
    if (standing.reach === this.#reach) return standing;
    return { ...standing, reach: this.#reach, set: this.#reach.taken(standing.reach, standing.set) };
  }

  #enter({ set, begun, lacks }: Standing): void {
    this.#sets[0] = set;
    this.#begun[0] = begun;
    this.#lacks[0] = lacks;
  }

  /** Goes on with one byte behind `depth` others. True: no text does. */
  #isDeadBehind(depth: number, byte: number): boolean {
    let set = this.#sets[depth] ?? DEAD;
    let begun = this.#begun[depth] ?? 0;
    let lacks = this.#lacks[depth] ?? 0;
    if (lacks > 0) {
      if (byte >> 6 !== 2) return true;
      begun = (begun << 6) | (byte & 0x3f);
      lacks -= 1;
      if (lacks === 0) set = this.#reach.after(set, begun);
    } else if (byte < 0x80) {
      set = this.#reach.after(set, byte);
    } else {
      if (byte < 0xc2 || byte > 0xf4) return true;
      lacks = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
      begun = byte & (0x3f >> lacks);
    }
    this.#sets[depth + 1] = set;
    this.#begun[depth + 1] = begun;
    this.#lacks[depth + 1] = lacks;
    return set === DEAD;
  }

  /** Whether a token may stop here: not within a character that cannot come. */
  #mayStop(depth: number): boolean {
    const lacks = this.#lacks[depth] ?? 0;
    if (lacks === 0) return true;
    const bits = 6 * lacks;
    const low = (this.#begun[depth] ?? 0) << bits;
    const high = low | ((1 << bits) - 1);
    // A character is not written longer than it need be.
    const least = lacks === 2 ? 0x800 : lacks === 3 ? 0x10000 : 0;
    return this.#reach.mayGoOn(this.#sets[depth] ?? DEAD, low === 0 ? least : low, high);
  }
}
