/**
 * Reads arguments that are written as nested elements, and returns them as JSON.
 *
 *     gap --prefix<NAME>--> value --text--> text --prefix</NAME>--> gap
 *      ^                      |
 *      +---prefix<NAME>-------+   an element within it: the value is an object or an array
 *     gap --close or next of the call--> complete
 */
import type { NestedArguments, ValueNode } from '../../protocol/reply-format.js';
import type { ArgumentsPart, ArgumentsReader } from './arguments-reader.js';
import { ExpectedText } from './expected-text.js';
import { membersOf, PossibleWays, united } from './possible-ways.js';
import { TaggedValue } from './tagged-value.js';

/** The longest name of a tag, so that text that no grammar constrains is not buffered without a bound. */
const MAX_NAME = 1024;

const ITEM = 'item';

/** A value that is not known. */
const ANYTHING: ValueNode = { types: ['string', 'object', 'array', 'number', 'boolean', 'null'] };

/** An object or an array that has begun. */
interface Open {
  readonly kind: 'object' | 'array';
  /** Of giving its members by their names, or its items by their places. */
  readonly ways: PossibleWays<ValueNode>;
  written: number;
}

type State = 'gap' | 'tag' | 'value' | 'text' | 'closing' | 'ends' | 'over';

export class NestedReader implements ArgumentsReader {
  readonly #prefix: string;
  readonly #nodes: readonly ValueNode[];
  readonly #ends: readonly string[];
  readonly #open: Open[] = [];
  #state: State = 'gap';
  #expected: ExpectedText;
  /** Text since the last value. */
  #raw = '';
  #tag = '';
  /** Each of what the value may be that is being read, and what was read of it while it may be anything. */
  #possible: readonly ValueNode[] = [];
  #buffered = '';
  /** The same without the white space that leads. */
  #begun = '';
  /** An element is within it. */
  #nests = false;
  #value: TaggedValue | undefined;
  after: 0 | 1 | 'failed' | undefined;
  rest = '';

  /** `nodes`: of all arguments first. `ends`: what closes the call, and, if calls can follow each other, what leads on to the next. */
  constructor({ prefix }: NestedArguments, nodes: readonly ValueNode[], ends: readonly string[]) {
    this.#prefix = prefix;
    this.#nodes = nodes;
    this.#ends = ends;
    this.#push('object', nodes.slice(0, 1));
    this.#expected = this.#gap();
  }

  get complete(): boolean {
    return this.#state === 'over';
  }

  take(text: string): ArgumentsPart {
    let json = '';
    let used = 0;
    while (used < text.length && !this.complete) {
      const part = this.#state === 'text' ? this.#readText(text.slice(used)) : this.#take(text[used] ?? '');
      json += part.json;
      used += part.used;
    }
    return { json, used };
  }

  #gap(): ExpectedText {
    return new ExpectedText([`${this.#prefix}<`]);
  }

  #take(unit: string): ArgumentsPart {
    if (this.#state !== 'value') this.#raw += unit;
    return { json: this.#step(unit), used: 1 };
  }

  #step(unit: string): string {
    switch (this.#state) {
      case 'gap':
        return this.#expect(unit, () => this.#begin());
      case 'ends':
        return this.#expect(unit, (which) => this.#end(which === 0 ? 0 : 1));
      case 'tag':
        return this.#readTag(unit);
      case 'value':
        return this.#readValue(unit);
      case 'closing':
        if (unit === '>') this.#awaitGap();
        return this.#raw.length > 4 * MAX_NAME ? this.#end('failed') : '';
      default:
        return '';
    }
  }

  #expect(unit: string, matched: (which: number) => string): string {
    const progress = this.#expected.take(unit);
    if (progress === 'more') return '';
    return progress === 'failed' ? this.#end('failed') : matched(progress);
  }

  #begin(): '' {
    this.#state = 'tag';
    this.#tag = '';
    return '';
  }

  #awaitGap(): void {
    this.#state = 'gap';
    this.#raw = '';
    this.#expected = this.#gap();
  }

  #readTag(unit: string): string {
    if (unit === '/' && this.#tag === '' && this.#open.length === 1 && !this.#nests) {
      this.#state = 'ends';
      this.#expected = new ExpectedText(this.#ends);
      for (const before of `${this.#prefix}<`) this.#expected.take(before);
      return this.#expect(unit, (which) => this.#end(which === 0 ? 0 : 1));
    }
    if (unit !== '>') {
      this.#tag += unit;
      return this.#tag.length > MAX_NAME ? this.#end('failed') : '';
    }
    const lead = this.#nests ? this.#nest() : '';
    if (!this.#tag.startsWith('/')) return lead + this.#element(this.#tag.trim());
    const closed = this.#open.pop();
    this.#awaitGap();
    return closed?.kind === 'array' ? `${lead}]` : `${lead}}`;
  }

  #push(kind: Open['kind'], possible: readonly ValueNode[]): void {
    const all = possible.flatMap(({ objects = [], arrays = [] }) => (kind === 'object' ? objects : arrays));
    const ways = new PossibleWays(all.map((parts) => membersOf(parts, this.#nodes)));
    this.#open.push({ kind, ways, written: 0 });
  }

  /** The value is the object or array that the tag stands in. */
  #nest(): string {
    this.#nests = false;
    const { types } = united(this.#possible);
    const closes = this.#tag.startsWith('/');
    const lists = types.includes('array') && (this.#tag === ITEM || !types.includes('object'));
    const kind = (closes ? this.#empty === 'array' : lists) ? 'array' : 'object';
    const bracket = kind === 'array' ? '[' : '{';
    this.#open.at(-1)?.ways.read(bracket, true);
    this.#push(kind, this.#possible);
    return bracket;
  }

  #element(name: string): string {
    const parent = this.#open.at(-1);
    if (parent === undefined) return '';
    const { kind, written } = parent;
    const possible = parent.ways.begin(kind === 'array' ? `${written}` : name);
    this.#possible = possible.length > 0 ? possible : [ANYTHING];
    this.#buffered = '';
    this.#begun = '';
    this.#state = 'value';
    parent.written += 1;
    const lead = written > 0 ? ', ' : this.#open.length === 1 ? '{' : '';
    return kind === 'array' ? lead : `${lead}${JSON.stringify(name)}: `;
  }

  /** What an element with nothing in it is. Undefined: a string. */
  get #empty(): ValueNode['empty'] {
    return this.#possible.find(({ empty }) => empty !== undefined)?.empty;
  }

  /** Until it is known whether an element is within it. */
  #readValue(unit: string): string {
    this.#buffered += unit;
    // White space that leads is not looked at again with each unit that follows it.
    if (this.#begun === '' && unit.trim() === '') return '';
    this.#begun += unit;
    const begun = this.#begun;
    const tag = `${this.#prefix}<`;
    if (begun.length <= tag.length && tag.startsWith(begun)) return '';
    if (begun.startsWith(tag) && (unit !== '/' || this.#empty !== undefined)) {
      this.#nests = true;
      this.#raw = this.#buffered.slice(0, -1);
      this.#begin();
      return this.#take(unit).json;
    }
    const { types, scalars } = united(this.#possible);
    const own = types.filter((type) => type !== 'object' && type !== 'array');
    this.#value = new TaggedValue(
      { types: own, ...(scalars && { scalars }) },
      { before: '', close: `${this.#prefix}</` },
    );
    this.#state = 'text';
    return this.#readText(this.#buffered).json;
  }

  #readText(text: string): ArgumentsPart {
    const part = this.#value?.take(text) ?? { json: '', used: text.length };
    const complete = this.#value?.complete === true;
    this.#open.at(-1)?.ways.read(part.json, complete);
    if (complete) this.#state = 'closing';
    return part;
  }

  #end(after: 0 | 1 | 'failed'): string {
    this.#state = 'over';
    this.after = after;
    this.rest = this.#raw;
    const [root, ...inner] = this.#open;
    const closed = inner.reverse().map(({ kind }) => (kind === 'array' ? ']' : '}'));
    return `${closed.join('')}${root?.written === 0 ? '{}' : '}'}`;
  }
}
