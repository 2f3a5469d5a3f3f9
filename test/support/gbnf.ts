/**
 * A small interpreter of GBNF: it decides whether a grammar allows a text, and generates texts. Grammars without left
 * recursion.
 */

type Node =
  | { readonly kind: 'ref'; readonly name: string }
  | { readonly kind: 'class'; readonly ranges: readonly (readonly [number, number])[]; readonly not: boolean }
  | { readonly kind: 'all'; readonly nodes: readonly Node[] }
  | { readonly kind: 'any'; readonly nodes: readonly Node[] }
  | { readonly kind: 'times'; readonly node: Node; readonly least: number; readonly most: number };

/** whole: the grammar allows it; begun: some text continues it, and it is not whole; no: none does. */
export type Verdict = 'whole' | 'begun' | 'no';

/** Beyond this depth of rules the shortest alternative is taken. */
const DEPTH = 40;
/** Characters of generated texts where almost any is allowed. */
const POOL = Array.from(
  'abcxyz019 _-.,:{}[]<>/\\"\n\t\u0001\u007fäß中🎉',
  (character) => character.codePointAt(0) ?? 0,
);

export class Gbnf {
  readonly #rules: ReadonlyMap<string, Node>;
  readonly #depths = new Map<Node, number>();

  constructor(text: string) {
    this.#rules = new Parser(text).rules();
    for (const rule of this.#rules.values()) this.#refs(rule);
  }

  /** A text that the grammar allows. `random`: 0 to below 1. */
  write(random: () => number): string {
    if (this.#depths.size === 0) this.#measure();
    return this.#write(this.#rule('root'), random, 0);
  }

  /** The depths of all rules. The last ones first, since a rule mostly names later ones. */
  #measure(): void {
    const rules = [...this.#rules.values()].reverse();
    for (let changed = true; changed;) {
      changed = false;
      for (const rule of rules) {
        const depth = this.#depth(rule);
        if (depth === (this.#depths.get(rule) ?? Infinity)) continue;
        this.#depths.set(rule, depth);
        changed = true;
      }
    }
  }

  reads(text: string): Verdict {
    const { ends, length, further } = this.#ends(text);
    return ends.has(length) ? 'whole' : further ? 'begun' : 'no';
  }

  /** The longest beginning of the text that it allows; '': none. */
  beginning(text: string): string {
    return Array.from(text)
      .slice(0, Math.max(0, ...this.#ends(text).ends))
      .join('');
  }

  /** Where texts that it allows may end, in characters. `further`: more text may follow all of it. */
  #ends(text: string): { readonly ends: ReadonlySet<number>; readonly length: number; readonly further: boolean } {
    const characters = Array.from(text, (character) => character.codePointAt(0) ?? 0);
    const known = new Map<Node, Map<number, ReadonlySet<number>>>();
    const seen = { end: false };
    const ends = (node: Node, from: number): ReadonlySet<number> => {
      const before = known.get(node)?.get(from);
      if (before) return before;
      const found = work(node, from);
      if (!known.has(node)) known.set(node, new Map());
      known.get(node)?.set(from, found);
      return found;
    };
    const onward = (node: Node, froms: ReadonlySet<number>): Set<number> =>
      new Set([...froms].flatMap((from) => [...ends(node, from)]));
    const work = (node: Node, from: number): ReadonlySet<number> => {
      switch (node.kind) {
        case 'ref':
          return ends(this.#rule(node.name), from);
        case 'class': {
          const character = characters[from];
          if (character === undefined) seen.end = true;
          return new Set(character !== undefined && allows(node, character) ? [from + 1] : []);
        }
        case 'all':
          return node.nodes.reduce<ReadonlySet<number>>((froms, next) => onward(next, froms), new Set([from]));
        case 'any':
          return new Set(node.nodes.flatMap((next) => [...ends(next, from)]));
        case 'times': {
          const all = new Set<number>(node.least === 0 ? [from] : []);
          let froms: ReadonlySet<number> = new Set([from]);
          for (let i = 1; i <= node.most && froms.size > 0; i++) {
            froms = onward(node.node, froms);
            if (i >= node.least) froms.forEach((end) => all.add(end));
          }
          return all;
        }
      }
    };
    return { ends: ends(this.#rule('root'), 0), length: characters.length, further: seen.end };
  }

  #rule(name: string): Node {
    const rule = this.#rules.get(name);
    if (!rule) throw new Error(`no rule ${name}`);
    return rule;
  }

  #refs(node: Node): void {
    if (node.kind === 'ref') this.#rule(node.name);
    else if (node.kind === 'times') this.#refs(node.node);
    else if (node.kind !== 'class') node.nodes.forEach((inner) => this.#refs(inner));
  }

  /** Least number of rules until everything is written. */
  #depth(node: Node): number {
    switch (node.kind) {
      case 'ref':
        return 1 + (this.#depths.get(this.#rule(node.name)) ?? Infinity);
      case 'class':
        return 0;
      case 'all':
        return Math.max(0, ...node.nodes.map((inner) => this.#depth(inner)));
      case 'any':
        return Math.min(...node.nodes.map((inner) => this.#depth(inner)));
      case 'times':
        return node.least === 0 ? 0 : this.#depth(node.node);
    }
  }

  #shortest(nodes: readonly Node[]): readonly Node[] {
    const depths = nodes.map((inner) => this.#depth(inner));
    const least = Math.min(...depths);
    return nodes.filter((_, at) => depths[at] === least);
  }

  #write(node: Node, random: () => number, depth: number): string {
    const below = (count: number): number => Math.floor(random() * count);
    switch (node.kind) {
      case 'ref':
        return this.#write(this.#rule(node.name), random, depth + 1);
      case 'class': {
        const ranges = node.not ? [] : node.ranges;
        const [low = 0, high = 0] = ranges[below(ranges.length)] ?? [];
        if (!node.not) return String.fromCodePoint(low + below(high - low + 1));
        const pool = POOL.filter((character) => allows(node, character));
        return String.fromCodePoint(pool[below(pool.length)] ?? 0x7a);
      }
      case 'all':
        return node.nodes.map((inner) => this.#write(inner, random, depth)).join('');
      case 'any': {
        const open = depth < DEPTH ? node.nodes : this.#shortest(node.nodes);
        const chosen = open[below(open.length)];
        return chosen ? this.#write(chosen, random, depth) : '';
      }
      case 'times': {
        const most = depth < DEPTH ? Math.min(node.most, node.least + 4) : node.least;
        const times = node.least + below(most - node.least + 1);
        return Array.from({ length: times }, () => this.#write(node.node, random, depth)).join('');
      }
    }
  }
}

function allows({ ranges, not }: Node & { kind: 'class' }, character: number): boolean {
  return ranges.some(([low, high]) => low <= character && character <= high) !== not;
}

class Parser {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  rules(): Map<string, Node> {
    const rules = new Map<string, Node>();
    while (this.#at < this.#text.length) {
      const name = this.#take(/[\w-]+ ::= ?/y).replace(/ ::= ?$/, '');
      rules.set(name, this.#alternatives());
      if (this.#at < this.#text.length) this.#take(/\n/y);
    }
    return rules;
  }

  #alternatives(): Node {
    const nodes = [this.#sequence()];
    while (this.#try(/\| ?/y) !== undefined) nodes.push(this.#sequence());
    return { kind: 'any', nodes };
  }

  #sequence(): Node {
    const nodes: Node[] = [];
    for (let node = this.#repeated(); node; node = this.#repeated()) nodes.push(node);
    return { kind: 'all', nodes };
  }

  #repeated(): Node | undefined {
    const node = this.#one();
    if (!node) return undefined;
    const [, sign, least, comma, most] = /^([*+?])|^\{(\d+)(,?)(\d*)\}/.exec(this.#try(/[*+?]|\{[^}]*\}/y) ?? '') ?? [];
    this.#try(/ +/y);
    if (sign !== undefined)
      return { kind: 'times', node, least: sign === '+' ? 1 : 0, most: sign === '?' ? 1 : Infinity };
    if (least === undefined) return node;
    const upTo = comma === '' ? Number(least) : most === '' ? Infinity : Number(most);
    return { kind: 'times', node, least: Number(least), most: upTo };
  }

  #one(): Node | undefined {
    if (this.#try(/"/y) !== undefined) {
      const nodes: Node[] = [];
      while (this.#try(/"/y) === undefined) {
        const character = this.#character();
        nodes.push({ kind: 'class', ranges: [[character, character]], not: false });
      }
      return { kind: 'all', nodes };
    }
    if (this.#try(/\[/y) !== undefined) {
      const not = this.#try(/\^/y) !== undefined;
      const ranges: [number, number][] = [];
      while (this.#try(/\]/y) === undefined) {
        const low = this.#character();
        ranges.push([low, this.#try(/-(?!\])/y) === undefined ? low : this.#character()]);
      }
      return { kind: 'class', ranges, not };
    }
    if (this.#try(/\( */y) !== undefined) {
      const node = this.#alternatives();
      this.#take(/\)/y);
      return node;
    }
    const name = this.#try(/[\w-]+/y);
    return name === undefined ? undefined : { kind: 'ref', name };
  }

  #character(): number {
    const text = this.#take(/\\x[\da-fA-F]{2}|\\u[\da-fA-F]{4}|\\U[\da-fA-F]{8}|\\["\\nrt[\]-]|[^\\]/uy);
    if (!text.startsWith('\\')) return text.codePointAt(0) ?? 0;
    if (/^\\[xuU]/.test(text)) return Number.parseInt(text.slice(2), 16);
    return ({ n: 10, r: 13, t: 9 } as Record<string, number>)[text[1] ?? ''] ?? text.charCodeAt(1);
  }

  #try(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    this.#at += found?.length ?? 0;
    return found;
  }

  #take(pattern: RegExp): string {
    const found = this.#try(pattern);
    if (found === undefined) throw new Error(`no GBNF at ${this.#at}: ${this.#text.slice(this.#at, this.#at + 40)}`);
    return found;
  }
}

/** Numbers from 0 to below 1, the same for the same seed (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
