import { randomUUID } from 'node:crypto';
import { LEAST_REACH, maskBytes, MAX_LEAVES, MAX_MASKS, MAX_REACH } from './mask-memory.js';
import { programBytes, programOf } from './program.js';
import { DEAD, Reach } from './reach.js';

/** The position of a text in a grammar: a set of places, and the beginning of a character that a token ended in. */
export interface Standing {
  readonly reach: Reach;
  readonly set: number;
  /** Bits of the character so far, and bytes that it still lacks. */
  readonly begun: number;
  readonly lacks: number;
}

/** Characters of ASCII that a narrow place may continue with. */
const NARROW = 32;

/** A bit for each token of the vocabulary: whether it may come next. Is not changed once it is made. */
export type TokenBits = Uint32Array;

export function hasBit(bits: TokenBits, token: number): boolean {
  return (((bits[token >> 5] ?? 0) >> (token & 31)) & 1) === 1;
}

function setBit(bits: TokenBits, token: number): void {
  bits[token >> 5] = (bits[token >> 5] ?? 0) | (1 << (token & 31));
}

export interface MaskLimits {
  /** Places that one call may visit. */
  readonly work: number;
  /** This grammar's share of the memory for all grammars of its store, from 0 to 1. */
  readonly share: () => number;
}

/** A place of texts in a grammar of which the mask was made. */
export interface MaskPlace {
  /** Names the numbering of the grammar's places. Two places of one numbering with one number are the same. */
  readonly of: string;
  readonly at: number;
  /** The allowed tokens after which a text stands at another place, each with that one's number; -1: within a character. */
  readonly leaves: Int32Array;
}

export interface MadeMask {
  /** Which tokens may come next. */
  readonly mask: TokenBits;
  readonly isNarrow: boolean;
  /** Absent within a character, and where there are too many leaves. */
  readonly place?: MaskPlace | undefined;
}

/** Computes which tokens a grammar allows. Positions of texts in it are the caller's {@link Standing}s. */
export class MaskGrammar {
  readonly #tokens: SortedTokens;
  readonly #limits: MaskLimits;
  #reach: Reach;
  /** By their places; the one used last is last. */
  readonly #masks = new Map<number, MadeMask>();
  #maskBytes = 0;
  #numbering: string = randomUUID();
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

  get programBytes(): number {
    return programBytes(this.#reach.program);
  }

  /** Bytes that it keeps besides. */
  get bytes(): number {
    return this.#reach.size + this.#maskBytes;
  }

  /** Keeps no more than its share from now on, of which there may be less than when it was last looked at. */
  fit(): void {
    this.#fitReach();
    this.#fitMasks();
  }

  /** Undefined if it cannot be read. Throws `GrammarTooExpensive`. */
  static of(gbnf: string, tokens: SortedTokens, limits: MaskLimits): MaskGrammar | undefined {
    const program = programOf(gbnf);
    return program && new MaskGrammar(new Reach(program, limits.work), tokens, limits);
  }

  /** Before any text. */
  get start(): Standing {
    return { reach: this.#reach, set: this.#reach.start, begun: 0, lacks: 0 };
  }

  /** After a token that is not an end token; undefined if it is not allowed. Throws `GrammarTooExpensive`. */
  after(standing: Standing, token: number): Standing | undefined {
    const { bytes, starts } = this.#tokens;
    this.#enter(this.#here(standing));
    let depth = 0;
    for (const byte of bytes.subarray(starts[token], starts[token + 1])) {
      if (this.#isDeadAfter(depth, byte)) return undefined;
      depth += 1;
    }
    const set = this.#sets[depth] ?? DEAD;
    const begun = this.#begun[depth] ?? 0;
    const lacks = this.#lacks[depth] ?? 0;
    return { reach: this.#reach, set, begun, lacks };
  }

  /** Whether a token may come next. Throws `GrammarTooExpensive`. */
  allows(standing: Standing, token: number): boolean {
    const { starts, bytes, ends } = this.#tokens;
    const { set, lacks } = this.#here(standing);
    if (ends.includes(token)) return lacks === 0 && this.#reach.mayEnd(set);
    const [from = 0, to = 0] = [starts[token], starts[token + 1]];
    return from < to && bytes[from] !== 0 && this.after(standing, token) !== undefined && this.#mayStop(to - from);
  }

  /**
   * Whether few characters can come next, so that a mask is found at once: within a name, not within a text. Throws `GrammarTooExpensive`.
   */
  isNarrow(standing: Standing): boolean {
    const { lacks, set } = this.#here(standing);
    return lacks === 0 && (this.#masks.get(set)?.isNarrow ?? this.#reach.fanOut(set) <= NARROW);
  }

  /** Which tokens may come next. Throws `GrammarTooExpensive`. */
  mask(standing: Standing): TokenBits {
    return this.made(standing).mask;
  }

  /** The same with what is known of the place. Throws `GrammarTooExpensive`. */
  made(standing: Standing): MadeMask {
    const here = this.#here(standing);
    if (here.lacks > 0) return { mask: this.#search(here), isNarrow: false };
    const made = this.#masks.get(here.set) ?? this.#make(here);
    this.#masks.delete(here.set);
    this.#masks.set(here.set, made);
    this.#fitMasks();
    return made;
  }

  #make(here: Standing): MadeMask {
    const leaves: number[] = [];
    const mask = this.#search(here, leaves);
    const isNarrow = this.#reach.fanOut(here.set) <= NARROW;
    const place =
      leaves.length <= 2 * MAX_LEAVES
        ? { of: this.#numbering, at: here.set, leaves: Int32Array.from(leaves) }
        : undefined;
    const made = { mask, isNarrow, place };
    this.#maskBytes += madeBytes(made);
    return made;
  }

  /** The same where it is made already; undefined where it is not, and within a character. */
  known(standing: Standing): MadeMask | undefined {
    const { set, lacks } = this.#here(standing);
    return lacks === 0 ? this.#masks.get(set) : undefined;
  }

  /** The last one used stays. */
  #fitMasks(): void {
    const most = MAX_MASKS * this.#limits.share();
    for (const [set, made] of this.#masks) {
      if (this.#maskBytes <= most || this.#masks.size === 1) break;
      this.#masks.delete(set);
      this.#maskBytes -= madeBytes(made);
    }
  }

  #fitReach(): void {
    const { work, share } = this.#limits;
    if (this.#reach.size <= Math.max(LEAST_REACH, MAX_REACH * share())) return;
    this.#reach = new Reach(this.#reach.program, work);
    this.#masks.clear();
    this.#maskBytes = 0;
    this.#numbering = randomUUID();
  }

  /** `leaves`: gets pairs as {@link MaskPlace} has them, of too many some. */
  #search(here: Standing, leaves?: number[]): TokenBits {
    const { bytes, starts, order, common, leaps, ends } = this.#tokens;
    const allowed = new Uint32Array(Math.ceil((starts.length - 1) / 32));
    this.#enter(here);
    for (let i = 0; i < order.length;) {
      const token = order[i] ?? 0;
      const start = starts[token] ?? 0;
      const length = (starts[token + 1] ?? 0) - start;
      let depth = common[i] ?? 0;
      while (depth < length && !this.#isDeadAfter(depth, bytes[start + depth] ?? 0)) depth += 1;
      i += 1;
      if (depth === length && this.#mayStop(depth)) {
        setBit(allowed, token);
        const set = (this.#lacks[depth] ?? 0) > 0 ? DEAD : (this.#sets[depth] ?? DEAD);
        if (leaves && set !== here.set && leaves.length <= 2 * MAX_LEAVES) leaves.push(token, set);
      }
      // No token with these bytes can come.
      if (depth < length) while (i < order.length && (common[i] ?? 0) > depth) i = leaps[i] ?? order.length;
    }
    if (here.lacks === 0 && this.#reach.mayEnd(here.set)) for (const end of ends) setBit(allowed, end);
    return allowed;
  }

  /** The same text in the current reach, which is rebuilt if it has grown too large. */
  #here(standing: Standing): Standing {
    this.#fitReach();
    this.#reach.grant(this.#limits.work);
    if (standing.reach === this.#reach) return standing;
    return { ...standing, reach: this.#reach, set: this.#reach.taken(standing.reach, standing.set) };
  }

  #enter({ set, begun, lacks }: Standing): void {
    this.#sets[0] = set;
    this.#begun[0] = begun;
    this.#lacks[0] = lacks;
  }

  /** Goes on with one byte after `depth` others. True: no text does. */
  #isDeadAfter(depth: number, byte: number): boolean {
    let set = this.#sets[depth] ?? DEAD;
    let begun = this.#begun[depth] ?? 0;
    let lacks = this.#lacks[depth] ?? 0;
    if (lacks > 0) {
      if (byte >> 6 !== 2) return true;
      const before = begun;
      begun = (begun << 6) | (byte & 0x3f);
      if (!isUtf8(before, begun, lacks)) return true;
      lacks -= 1;
      if (lacks === 0) set = this.#reach.after(set, begun);
    } else if (byte < 0x80) {
      set = this.#reach.after(set, byte);
    } else {
      if (byte < 0xc2 || byte > 0xf4 || !this.#reach.mayBeLonger(set)) return true;
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
    const [low, high] = begunCharacters(this.#begun[depth] ?? 0, lacks);
    return this.#reach.mayGoOn(this.#sets[depth] ?? DEAD, low, high);
  }
}

export function madeBytes({ mask, place }: MadeMask): number {
  return maskBytes(32 * mask.length) + (place?.leaves.byteLength ?? 0);
}

/**
 * Whether a character may have these bits, `before` without its latest byte, when it lacked so many bytes: no surrogate, none that is
 * written longer than it need be, and none beyond the last one. The second byte decides.
 */
function isUtf8(before: number, bits: number, lacked: number): boolean {
  // Of four bytes.
  if (lacked === 3) return bits >= 0x10 && bits <= 0x10f;
  // Of three bytes: the third of four stands after more bits than a first of three has.
  return lacked !== 2 || before > 0xf || (bits >= 0x20 && (bits < 0x360 || bits > 0x37f));
}

/** The first and the last character that may begin with these bits. `lacks`: bytes that are still to come, at least one. */
function begunCharacters(bits: number, lacks: number): readonly [first: number, last: number] {
  const low = bits << (6 * lacks);
  const high = low | ((1 << (6 * lacks)) - 1);
  // The first byte of a character of three bytes, and of four: it is not written longer than it need be.
  const least = lacks === 2 ? 0x800 : lacks === 3 ? 0x10000 : 0;
  // Surrogates follow.
  const most = lacks === 2 && bits === 0xd ? 0xd7ff : high;
  return [low === 0 ? least : low, most];
}

/** The tokens of a vocabulary, in the order of their bytes. */
export interface SortedTokens {
  readonly bytes: Uint8Array;
  /** Where each token's bytes begin, by id; one more for the end of the last. */
  readonly starts: Uint32Array;
  /** Ids of those that have bytes. */
  readonly order: Uint32Array;
  /** Bytes that each has in common with the one before it in `order`. */
  readonly common: Uint32Array;
  /** For each in `order`, the next one that has fewer bytes in common with the one before it; the number of them: none. */
  readonly leaps: Uint32Array;
  /** End tokens, whatever their bytes. */
  readonly ends: Uint32Array;
  readonly longest: number;
}

/** Sorts a vocabulary. `bytes`: of all tokens, one after the other; `starts`: where each token's begin, and the last one's end. */
export function sortedTokens(bytes: Uint8Array, starts: Uint32Array, ends: Uint32Array): SortedTokens {
  const ending = new Set(ends);
  const ids = Uint32Array.from({ length: starts.length - 1 }, (_, id) => id).filter((id) => !ending.has(id));
  const of = (id: number): Uint8Array => bytes.subarray(starts[id], starts[id + 1]);
  // llama.cpp treats tokens that begin with U+0000 as empty.
  const isEmpty = (id: number): boolean => starts[id] === starts[id + 1] || bytes[starts[id] ?? 0] === 0;
  // Of most pairs the first four bytes tell, without two views of the bytes; where a token ends before, 0 stands for the rest.
  const heads = Uint32Array.from({ length: starts.length - 1 }, (_, id) => headOf(of(id)));
  const order = ids
    .filter((id) => !isEmpty(id))
    .sort((a, b) => (heads[a] ?? 0) - (heads[b] ?? 0) || Buffer.compare(of(a), of(b)));
  let longest = 0;
  const common = order.map((id, i) => {
    const [one, before] = [of(id), i === 0 ? new Uint8Array(0) : of(order[i - 1] ?? 0)];
    longest = Math.max(longest, one.length);
    let same = 0;
    while (same < before.length && one[same] === before[same]) same += 1;
    return same;
  });
  return { bytes, starts, order, common, leaps: leapsOf(common), ends, longest };
}

/** The first four bytes as a number. */
function headOf([a = 0, b = 0, c = 0, d = 0]: Uint8Array): number {
  return ((a << 24) | (b << 16) | (c << 8) | d) >>> 0;
}

/** From the last to the first: each leap is found through those after it. */
function leapsOf(common: Uint32Array): Uint32Array {
  const leaps = new Uint32Array(common.length);
  for (let i = common.length - 1; i >= 0; i--) {
    let next = i + 1;
    while (next < common.length && (common[next] ?? 0) >= (common[i] ?? 0)) next = leaps[next] ?? common.length;
    leaps[i] = next;
  }
  return leaps;
}
