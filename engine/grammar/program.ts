/**
 * A grammar as a program: rules in alternatives, alternatives in elements, as llama.cpp has them. Read from the GBNF that this
 * folder writes; left recursion, which that has not, would make {@link Reach} give up.
 */

/** Characters, by pairs of first and last code point, ascending or not. */
export interface CharacterClass {
  readonly not: boolean;
  readonly ranges: readonly number[];
}

export const ELEMENT = { end: 0, character: 1, rule: 2 } as const;

export interface Program {
  /** Of each element, in the order of its alternative, which an `end` closes. */
  readonly kinds: ArrayLike<number>;
  /** Of each element: the index of its class or of its rule. */
  readonly values: ArrayLike<number>;
  readonly classes: readonly CharacterClass[];
  /** Of each rule, where its alternatives begin. */
  readonly rules: readonly (readonly number[])[];
  readonly root: number;
}

/** Bytes of an element, of an alternative, of a rule and of a class, besides its ranges; measured on Node 20. */
const BYTES = { element: 5, alternative: 8, rule: 64, class: 160, range: 8 } as const;

/** What a program takes in memory. */
export function programBytes({ kinds, classes, rules }: Program): number {
  return (
    BYTES.element * kinds.length +
    rules.reduce((sum, alternatives) => sum + BYTES.rule + BYTES.alternative * alternatives.length, 0) +
    classes.reduce((sum, { ranges }) => sum + BYTES.class + BYTES.range * ranges.length, 0)
  );
}

type Element = readonly [kind: number, value: number];

/** Undefined if it is not of the GBNF that is known here, or one of its rules is missing. */
export function programOf(gbnf: string): Program | undefined {
  try {
    return new Reader(gbnf).program();
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

class Reader {
  readonly #text: string;
  #at = 0;
  readonly #names = new Map<string, number>();
  readonly #alternatives: (readonly (readonly Element[])[] | undefined)[] = [];
  readonly #classes: CharacterClass[] = [];
  readonly #classIds = new Map<string, number>();

  constructor(text: string) {
    this.#text = text;
  }

  program(): Program {
    while (this.#at < this.#text.length) {
      const [, name = ''] = this.#take(/([\w-]+) ::= ?/y);
      this.#alternatives[this.#rule(name)] = this.#read();
      if (this.#at < this.#text.length) this.#take(/\n/y);
    }
    const kinds: number[] = [];
    const values: number[] = [];
    const rules = this.#alternatives.map((alternatives) => {
      if (!alternatives) throw new SyntaxError('no such rule');
      return alternatives.map((elements) => {
        const start = kinds.length;
        for (const [kind, value] of elements) {
          kinds.push(kind);
          values.push(value);
        }
        kinds.push(ELEMENT.end);
        values.push(0);
        return start;
      });
    });
    const root = this.#names.get('root');
    if (root === undefined) throw new SyntaxError('no root');
    return { kinds: Uint8Array.from(kinds), values: Int32Array.from(values), classes: this.#classes, rules, root };
  }

  /** Alternatives up to what closes them. Depth: that of the brackets, which isBounded bounds. */
  #read(): Element[][] {
    const alternatives = [this.#sequence()];
    while (this.#try(/\| ?/y)) alternatives.push(this.#sequence());
    return alternatives;
  }

  #sequence(): Element[] {
    const elements: Element[] = [];
    for (let item = this.#item(); item; item = this.#item()) {
      const times = this.#try(/([*+?])|\{(\d+)(,?)(\d*)\}/y);
      this.#try(/ +/y);
      // One by one: a text may have more characters than a call may have arguments.
      for (const element of times ? this.#repeated(item, times) : item) elements.push(element);
    }
    return elements;
  }

  #repeated(item: readonly Element[], [, sign, least, comma, most]: RegExpExecArray): Element[] {
    const one = item.length === 1 ? item : [this.#made([item])];
    const from = sign === undefined ? Number(least) : sign === '+' ? 1 : 0;
    const counted = sign === undefined && (comma === '' || most !== '');
    const upTo = counted ? Number(comma === '' ? least : most) : sign === '?' ? 1 : Infinity;
    const elements = Array.from({ length: from }, () => one).flat();
    if (upTo === Infinity) {
      const more = this.#alternatives.push(undefined) - 1;
      this.#alternatives[more] = [[...one, [ELEMENT.rule, more]], []];
      return [...elements, [ELEMENT.rule, more]];
    }
    let rest: Element[] = [];
    for (let i = from; i < upTo; i++) rest = [this.#made([[...one, ...rest], []])];
    return [...elements, ...rest];
  }

  #item(): readonly Element[] | undefined {
    if (this.#try(/"/y)) {
      const elements: Element[] = [];
      while (!this.#try(/"/y)) {
        const character = this.#character();
        elements.push(this.#class({ not: false, ranges: [character, character] }));
      }
      return elements;
    }
    if (this.#try(/\[/y)) {
      const not = this.#try(/\^/y) !== undefined;
      const ranges: number[] = [];
      while (!this.#try(/\]/y)) {
        const low = this.#character();
        ranges.push(low, this.#try(/-(?!\])/y) ? this.#character() : low);
      }
      return [this.#class({ not, ranges })];
    }
    if (this.#try(/\( */y)) {
      const group = this.#made(this.#read());
      this.#take(/\)/y);
      return [group];
    }
    const name = this.#try(/[\w-]+/y)?.[0];
    return name === undefined ? undefined : [[ELEMENT.rule, this.#rule(name)]];
  }

  #made(alternatives: readonly (readonly Element[])[]): Element {
    return [ELEMENT.rule, this.#alternatives.push(alternatives) - 1];
  }

  #rule(name: string): number {
    const known = this.#names.get(name) ?? this.#alternatives.push(undefined) - 1;
    this.#names.set(name, known);
    return known;
  }

  #class(made: CharacterClass): Element {
    const key = `${made.not ? '^' : ''}${made.ranges.join()}`;
    const known = this.#classIds.get(key) ?? this.#classes.push(made) - 1;
    this.#classIds.set(key, known);
    return [ELEMENT.character, known];
  }

  #character(): number {
    const [text] = this.#take(/\\x[\da-fA-F]{2}|\\u[\da-fA-F]{4}|\\U[\da-fA-F]{8}|\\["\\nrt[\]]|[^\\]/uy);
    if (!text.startsWith('\\')) return text.codePointAt(0) ?? 0;
    if (/^\\[xuU]/.test(text)) return Number.parseInt(text.slice(2), 16);
    return { n: 10, r: 13, t: 9 }[text.slice(1)] ?? text.charCodeAt(1);
  }

  #try(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text) ?? undefined;
    this.#at += found?.[0].length ?? 0;
    return found;
  }

  #take(pattern: RegExp): RegExpExecArray {
    const found = this.#try(pattern);
    if (!found) throw new SyntaxError('no GBNF');
    return found;
  }
}
