import { BYTES, MAX_GROWTH } from './mask-memory.js';
import { ELEMENT, type Program, type CharacterClass } from './program.js';

/** The empty set of places: the grammar does not allow the text. */
export const DEAD = -1;

/** The place after the whole grammar. */
const DONE = 0;
/** Not worked out yet. */
const UNKNOWN = -2;
const ASCII = 128;
const LAST_CHARACTER = 0x10ffff;

/** Thrown if an answer would need more work than granted. */
export class GrammarTooExpensive extends Error {
  override readonly name = 'GrammarTooExpensive';
}

/** A set of places, computed once: what llama.cpp keeps as its stacks. */
interface Places {
  /** Ascending. */
  readonly members: Int32Array;
  /** Classes that one of them asks for. */
  readonly classes: readonly number[];
  /** Absent: there is one class, and `next` is the set after its characters. */
  readonly table?: Table;
  next: number;
  /** A character beyond ASCII may come. */
  readonly longer: boolean;
}

/** The sets after characters. */
interface Table {
  readonly ascii: Int32Array;
  /** By the range of characters: which of {@link Reach}'s `bounds` it lies after. */
  readonly others: Map<number, number>;
  /** By which of the classes match. */
  readonly matching: Map<string, number>;
}

/**
 * The sets of places in a grammar that texts can be at, by number, and the transitions between them by character.
 * Places are stacks of elements that share their tails; equal places are one, and so are equal sets. A transition that
 * was computed once is a table lookup from then on, for every reply with the grammar.
 */
export class Reach {
  readonly program: Program;
  /** The set at the beginning. */
  readonly start: number;
  /** Of each place: the element that is next, and the place to continue at after its rule. */
  readonly #elements: number[] = [-1];
  readonly #below: number[] = [-1];
  readonly #ids = new Map<number, number>();
  readonly #closed = new Map<number, readonly number[]>();
  readonly #sets: Places[] = [];
  readonly #setIds = new Map<string, number>();
  /** Characters beyond ASCII at which a class begins or ends, ascending: those between two of them are in the same classes. */
  readonly #bounds: readonly number[];
  #size = 0;
  #most = MAX_GROWTH;
  #work: number;

  /** `work`: places that may be visited until {@link grant} is called again. */
  constructor(program: Program, work: number) {
    this.program = program;
    this.#work = work;
    this.#bounds = boundsOf(program.classes, ASCII);
    const places = new Set<number>();
    for (const first of program.rules[program.root] ?? []) this.#close(this.#at(first, DONE), places);
    this.start = this.#set(places);
  }

  /** Bytes kept for places and sets of them. */
  get size(): number {
    return this.#size;
  }

  /** Allows this much work from now on, and {@link MAX_GROWTH}. */
  grant(work: number): void {
    this.#work = work;
    this.#most = this.#size + MAX_GROWTH;
  }

  /** The set after a character; {@link DEAD}: none. Throws {@link GrammarTooExpensive}. */
  after(set: number, character: number): number {
    const from = this.#sets[set];
    if (!from) return DEAD;
    const { table } = from;
    if (!table) {
      const [only = -1] = from.classes;
      if (!allows(this.program.classes[only], character)) return DEAD;
      if (from.next === UNKNOWN) from.next = this.#following(from, new Set(from.classes));
      return from.next;
    }
    const range = character < ASCII ? -1 : rangeOf(this.#bounds, character);
    const known = range < 0 ? (table.ascii[character] ?? UNKNOWN) : (table.others.get(range) ?? UNKNOWN);
    if (known !== UNKNOWN) return known;
    const next = this.#after(from, table, character);
    if (range < 0) table.ascii[character] = next;
    else {
      this.#grow(BYTES.entry);
      table.others.set(range, next);
    }
    return next;
  }

  /** Whether a character from `low` to `high` may follow, for a character that has begun. */
  mayGoOn(set: number, low: number, high: number): boolean {
    return (this.#sets[set]?.classes ?? []).some((id) => overlaps(this.program.classes[id], low, high));
  }

  /** Whether a character beyond ASCII may follow. */
  mayBeLonger(set: number): boolean {
    return this.#sets[set]?.longer === true;
  }

  /** How many characters may follow; Infinity if one beyond ASCII may. Throws {@link GrammarTooExpensive}. */
  fanOut(set: number): number {
    if (this.mayBeLonger(set)) return Infinity;
    let count = 0;
    for (let character = 0; character < ASCII; character++) if (this.after(set, character) !== DEAD) count += 1;
    return count;
  }

  mayEnd(set: number): boolean {
    return this.#sets[set]?.members[0] === DONE;
  }

  /** How many places a set has: llama.cpp's stacks. */
  places(set: number): number {
    return this.#sets[set]?.members.length ?? 0;
  }

  /** A set of another reach of the same program, as one of this. */
  taken(other: Reach, set: number): number {
    const known = new Map<number, number>([[DONE, DONE]]);
    const copied = (place: number): number => {
      const open: number[] = [];
      for (let at = place; !known.has(at); at = other.#below[at] ?? DONE) open.push(at);
      for (const at of open.reverse()) {
        known.set(at, this.#at(other.#elements[at] ?? -1, known.get(other.#below[at] ?? DONE) ?? DONE));
      }
      return known.get(place) ?? DONE;
    };
    return this.#set(new Set(Array.from(other.#sets[set]?.members ?? [], copied)));
  }

  #after(from: Places, { matching }: Table, character: number): number {
    this.#spend(from.classes.length);
    const matches = new Set(from.classes.filter((id) => allows(this.program.classes[id], character)));
    if (matches.size === 0) return DEAD;
    const key = [...matches].join();
    const known = matching.get(key);
    if (known !== undefined) return known;
    const next = this.#following(from, matches);
    this.#grow(BYTES.entry + key.length);
    matching.set(key, next);
    return next;
  }

  /** The set after a character that is in these classes and in no other one. */
  #following({ members }: Places, matches: ReadonlySet<number>): number {
    this.#spend(members.length);
    const places = new Set<number>();
    for (const place of members) {
      const element = this.#elements[place] ?? -1;
      if (place === DONE || !matches.has(this.program.values[element] ?? -1)) continue;
      this.#close(this.#at(element + 1, this.#below[place] ?? DONE), places);
    }
    return this.#set(places);
  }

  /** Adds the places of characters, or {@link DONE}, that a place stands for. */
  #close(place: number, into: Set<number>): void {
    let closed = this.#closed.get(place);
    if (!closed) {
      const found: number[] = [];
      const seen = new Set([place]);
      // A set's iterator also returns elements that are added meanwhile.
      for (const next of seen) {
        this.#spend(1);
        const element = this.#elements[next] ?? -1;
        if (next === DONE || this.program.kinds[element] === ELEMENT.character) {
          found.push(next);
          continue;
        }
        const following = this.#at(element + 1, this.#below[next] ?? DONE);
        for (const first of this.program.rules[this.program.values[element] ?? -1] ?? []) {
          seen.add(this.#at(first, following));
        }
      }
      closed = found;
      this.#grow(BYTES.entry + BYTES.member * closed.length);
      this.#closed.set(place, closed);
    }
    this.#spend(closed.length);
    for (const each of closed) into.add(each);
  }

  /** The place at an element, or, at the end of its alternative, the one below. */
  #at(element: number, below: number): number {
    if (this.program.kinds[element] === ELEMENT.end) return below;
    const key = below * this.program.kinds.length + element;
    const known = this.#ids.get(key);
    if (known !== undefined) return known;
    this.#grow(BYTES.place);
    const made = this.#elements.push(element) - 1;
    this.#below.push(below);
    this.#ids.set(key, made);
    return made;
  }

  #set(places: ReadonlySet<number>): number {
    const members = Int32Array.from(places).sort();
    const key = members.join();
    const known = this.#setIds.get(key);
    if (known !== undefined) return known;
    const classes = new Set<number>();
    for (const place of members) {
      if (place !== DONE) classes.add(this.program.values[this.#elements[place] ?? -1] ?? -1);
    }
    const several = classes.size > 1;
    this.#grow(BYTES.set + BYTES.member * members.length + (several ? BYTES.table : 0));
    const longer = [...classes].some((id) => overlaps(this.program.classes[id], ASCII, LAST_CHARACTER));
    const made: Places = {
      members,
      classes: [...classes],
      next: UNKNOWN,
      longer,
      ...(several && { table: { ascii: new Int32Array(ASCII).fill(UNKNOWN), others: new Map(), matching: new Map() } }),
    };
    const id = this.#sets.push(made) - 1;
    this.#setIds.set(key, id);
    return id;
  }

  /** Counts bytes that are about to be kept. */
  #grow(bytes: number): void {
    if (this.#size + bytes > this.#most) throw new GrammarTooExpensive();
    this.#size += bytes;
  }

  #spend(work: number): void {
    this.#work -= work;
    if (this.#work < 0) throw new GrammarTooExpensive();
  }
}

/* Which characters a class of a grammar has. */

/** Characters above one at which a class begins, or after which it ends, ascending. */
function boundsOf(classes: readonly CharacterClass[], above: number): readonly number[] {
  const bounds = new Set<number>();
  for (const { ranges } of classes) {
    for (let i = 0; i < ranges.length; i += 2) {
      for (const bound of [ranges[i] ?? 0, (ranges[i + 1] ?? 0) + 1]) if (bound > above) bounds.add(bound);
    }
  }
  return [...bounds].sort((a, b) => a - b);
}

/** Whether a class has a character. */
function allows(characters: CharacterClass | undefined, character: number): boolean {
  return characters !== undefined && inRanges(characters, character, character) !== characters.not;
}

function overlaps(characters: CharacterClass | undefined, low: number, high: number): boolean {
  if (characters === undefined) return false;
  return characters.not ? !covers(characters, low, high) : inRanges(characters, low, high);
}

function covers({ ranges }: CharacterClass, low: number, high: number): boolean {
  let at = low;
  for (let i = 0; i < ranges.length && at <= high; i += 2) {
    if ((ranges[i] ?? 0) > at || at > (ranges[i + 1] ?? 0)) continue;
    at = (ranges[i + 1] ?? 0) + 1;
    i = -2;
  }
  return at > high;
}

function inRanges({ ranges }: CharacterClass, low: number, high: number): boolean {
  for (let i = 0; i < ranges.length; i += 2) {
    if ((ranges[i] ?? 0) <= high && low <= (ranges[i + 1] ?? 0)) return true;
  }
  return false;
}

/** How many of the bounds are not above a character. */
function rangeOf(bounds: readonly number[], character: number): number {
  let [low, high] = [0, bounds.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((bounds[middle] ?? 0) <= character) low = middle + 1;
    else high = middle;
  }
  return low;
}
