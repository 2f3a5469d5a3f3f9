/**
 * Reads arguments that are written as elements, tagged or nested, and returns them as JSON.
 *
 *     gap --open--> name --between--> begin --other text--> value --close--> gap
 *      ^                                |
 *      +---open (of nested elements)----+   an element within it: the value is an object or an array
 *     gap --close or next of the call--> complete
 */
import type {
  NestedArguments,
  TaggedArguments,
  ValueNode,
  ValueType,
  NodeParts,
  ValueTypes,
} from '../../protocol/reply-format.js';
import type { ArgumentsPart, ArgumentsReader } from './object-reader.js';
import { ElementValue } from './element-value.js';
import { ExpectedText } from './expected-text.js';

/** The longest name of an element, so that text that no grammar constrains is not buffered without a bound. */
const MAX_NAME = 1024;

/** The name of an array's items. */
const ITEM = 'item';

const TYPES: readonly ValueType[] = ['string', 'object', 'array', 'number', 'boolean', 'null'];
const SCALARS: readonly ValueType[] = ['string', 'number', 'boolean', 'null'];
/** A value that is not known. */
const ANYTHING: ValueNode = { types: TYPES };

/** What stands around the parts of an element. */
interface Marks {
  readonly open: string;
  /** The distinct texts between name and value, and the types that each stands for. */
  readonly betweens: readonly { readonly text: string; readonly types: readonly ValueType[] }[];
  /** Ends a value. */
  readonly close: string;
  readonly cdata: boolean;
  /** An object or an array is an element for each of its members or items. `close` is followed by the name and `>`. */
  readonly nests: boolean;
}

function elementMarks(notation: TaggedArguments | NestedArguments): Marks {
  if (notation.kind === 'nested') {
    const { prefix } = notation;
    return {
      open: `${prefix}<`,
      betweens: [{ text: '>', types: TYPES }],
      close: `${prefix}</`,
      cdata: false,
      nests: true,
    };
  }
  const { open, between, close, cdata = false } = notation;
  const types = (text: string): readonly ValueType[] =>
    TYPES.filter((type) => between[type as keyof typeof between] === text);
  const betweens = [...new Set(Object.values(between))].map((text) => ({ text, types: types(text) }));
  return { open, betweens, close, cdata, nests: false };
}

/** An object or an array that has begun. */
interface Open {
  readonly kind: 'object' | 'array';
  /** Of giving its members by their names, or its items by their places. */
  readonly ways: PossibleWays<ValueNode>;
  written: number;
}

type State = 'gap' | 'name' | 'between' | 'begin' | 'value' | 'closing' | 'ends' | 'over';

export class ElementReader implements ArgumentsReader {
  readonly #marks: Marks;
  readonly #nodes: readonly ValueNode[];
  readonly #ends: readonly string[];
  readonly #open: Open[] = [];
  #state: State = 'gap';
  #expected: ExpectedText;
  /** Text since the last value; of tagged arguments, since the last of the marks that was read whole. */
  #raw = '';
  #name = '';
  /** Each of what the value may be that is being read, and what was read of it while it may be anything. */
  #possible: readonly ValueNode[] = [];
  #buffered = '';
  /** The same without the white space that leads. */
  #begun = '';
  /** An element is within it. */
  #nesting = false;
  #value: ElementValue | undefined;
  after: 0 | 1 | 'failed' | undefined;
  rest = '';

  /**
   * `values`: of each function of the call's name; of nested arguments there is one. `ends`: what closes the call, and, if calls can
   * follow each other, what leads on to the next one.
   */
  constructor(
    notation: TaggedArguments | NestedArguments,
    values: readonly (readonly ValueNode[])[],
    ends: readonly string[],
  ) {
    this.#marks = elementMarks(notation);
    this.#nodes = values[0] ?? [];
    this.#ends = ends;
    const ways = values.flatMap((nodes) => (nodes[0]?.objects ?? []).map((parts) => membersOf(parts, nodes)));
    this.#open.push({ kind: 'object', ways: new PossibleWays(ways), written: 0 });
    this.#expected = this.#gap();
  }

  get complete(): boolean {
    return this.#state === 'over';
  }

  take(text: string): ArgumentsPart {
    let json = '';
    let used = 0;
    while (used < text.length && !this.complete) {
      const part = this.#step(text.slice(used));
      json += part.json;
      used += part.used;
    }
    return { json, used };
  }

  #step(text: string): ArgumentsPart {
    switch (this.#state) {
      case 'gap':
      case 'between':
      case 'ends':
        return this.#expect(text);
      case 'name':
        return this.#readName(text);
      case 'begin':
        return this.#begin(text[0] ?? '');
      case 'value':
        return this.#readValue(text);
      case 'closing':
        return this.#readClosing(text[0] ?? '');
      case 'over':
        return { json: '', used: 0 };
    }
  }

  /** What closes a call of nested elements begins as an element does (#readName). */
  #gap(): ExpectedText {
    const { open, nests } = this.#marks;
    return new ExpectedText(nests ? [open] : [open, ...this.#ends]);
  }

  #awaitGap(): void {
    this.#state = 'gap';
    this.#raw = '';
    this.#expected = this.#gap();
  }

  #expect(text: string): ArgumentsPart {
    let used = 0;
    for (const unit of text) {
      used += unit.length;
      this.#raw += unit;
      const progress = this.#expected.take(unit);
      if (progress === 'more') continue;
      return { json: progress === 'failed' ? this.#end('failed') : this.#matched(progress), used };
    }
    return { json: '', used };
  }

  #matched(which: number): string {
    if (!this.#marks.nests) this.#raw = '';
    if (this.#state === 'between') return this.#tag(which);
    const ended = this.#state === 'ends' ? which : which - 1;
    if (ended >= 0) return this.#end(ended === 0 ? 0 : 1);
    this.#awaitName();
    return '';
  }

  #awaitName(): void {
    this.#state = 'name';
    this.#name = '';
  }

  /** The name ends where the first unit of what follows it stands: no name that the grammar allows has that in it. */
  #readName(text: string): ArgumentsPart {
    const { open, betweens, nests } = this.#marks;
    if (nests && text.startsWith('/') && this.#name === '' && this.#open.length === 1 && !this.#nesting) {
      this.#state = 'ends';
      this.#expected = new ExpectedText(this.#ends);
      for (const before of open) this.#expected.take(before);
      return { json: '', used: 0 };
    }
    const first = betweens.map((between) => between.text.trimStart()[0] ?? '');
    let end = 0;
    while (end < text.length && !first.includes(text[end] ?? '')) end += 1;
    this.#name += text.slice(0, end);
    this.#raw += text.slice(0, end);
    if (this.#name.length > MAX_NAME) return { json: this.#end('failed'), used: end };
    if (end < text.length) {
      if (!nests) this.#raw = '';
      this.#state = 'between';
      this.#expected = new ExpectedText(betweens.map((between) => between.text));
    }
    return { json: '', used: end };
  }

  /** A name has been read, and the text after it with this number. */
  #tag(between: number): string {
    const lead = this.#nesting ? this.#nest() : '';
    if (!this.#marks.nests || !this.#name.startsWith('/')) return lead + this.#element(between);
    const closed = this.#open.pop();
    this.#awaitGap();
    return closed?.kind === 'array' ? `${lead}]` : `${lead}}`;
  }

  /** The value is the object or array that the tag stands in. */
  #nest(): string {
    this.#nesting = false;
    const { types } = united(this.#possible);
    const closes = this.#name.startsWith('/');
    const lists = types.includes('array') && (this.#name === ITEM || !types.includes('object'));
    const kind = (closes ? this.#empty === 'array' : lists) ? 'array' : 'object';
    const bracket = kind === 'array' ? '[' : '{';
    this.#open.at(-1)?.ways.read(bracket, true);
    const all = this.#possible.flatMap(({ objects = [], arrays = [] }) => (kind === 'object' ? objects : arrays));
    const ways = new PossibleWays(all.map((parts) => membersOf(parts, this.#nodes)));
    this.#open.push({ kind, ways, written: 0 });
    return bracket;
  }

  #element(between: number): string {
    const parent = this.#open.at(-1);
    if (parent === undefined) return '';
    const { kind, written } = parent;
    const name = this.#name.trim();
    const possible = parent.ways.begin(kind === 'array' ? `${written}` : name);
    this.#possible = possible.length > 0 ? possible : [ANYTHING];
    parent.written += 1;
    this.#buffered = '';
    this.#begun = '';
    if (this.#marks.nests) this.#state = 'begin';
    else this.#beginValue(this.#marks.betweens[between]);
    const lead = written > 0 ? ', ' : this.#open.length === 1 ? '{' : '';
    return kind === 'array' ? lead : `${lead}${JSON.stringify(name)}: `;
  }

  /** What an element with nothing in it is. Undefined if it is a string. */
  get #empty(): ValueNode['empty'] {
    return this.#possible.find(({ empty }) => empty !== undefined)?.empty;
  }

  /** Until it is known whether an element is within it. */
  #begin(unit: string): ArgumentsPart {
    this.#buffered += unit;
    // White space that leads is not looked at again with each unit that follows it.
    if (this.#begun === '' && unit.trim() === '') return { json: '', used: 1 };
    this.#begun += unit;
    const { open } = this.#marks;
    if (this.#begun.length <= open.length && open.startsWith(this.#begun)) return { json: '', used: 1 };
    if (this.#begun.startsWith(open) && (unit !== '/' || this.#empty !== undefined)) {
      this.#nesting = true;
      this.#raw = this.#buffered.slice(0, -1);
      this.#awaitName();
      return { json: '', used: 0 };
    }
    this.#beginValue({ text: '', types: SCALARS });
    return { json: this.#readValue(this.#buffered).json, used: 1 };
  }

  /** The value is one of `types`, and `text` stood before it. */
  #beginValue({ text, types: own } = { text: '', types: TYPES }): void {
    const { types, scalars } = united(this.#possible);
    const known = types.length > 0 ? types : TYPES;
    const possible = known.filter((type) => own.includes(type === 'integer' ? 'number' : type));
    this.#value = new ElementValue({ types: possible, ...(scalars && { scalars }) }, { before: text, ...this.#marks });
    this.#state = 'value';
  }

  #readValue(text: string): ArgumentsPart {
    const value = this.#value;
    if (value === undefined) return { json: '', used: text.length };
    const part = value.take(text);
    this.#open.at(-1)?.ways.read(part.json, value.complete);
    if (value.complete && this.#marks.nests) this.#state = 'closing';
    else if (value.complete) this.#awaitGap();
    return part;
  }

  /** The rest of a tag that closes a value. */
  #readClosing(unit: string): ArgumentsPart {
    this.#raw += unit;
    if (unit === '>') this.#awaitGap();
    return { json: this.#raw.length > 4 * MAX_NAME ? this.#end('failed') : '', used: 1 };
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

/** The longest JSON text that is looked for among the only values of a member. One that is longer is known by its type alone. */
const MAX_COMPARED = 1024;

/** What a member of a name may be in one way of giving an object's members. Undefined if it has none of that name. */
type Way<Member> = (name: string) => Member | undefined;

/**
 * The ways of giving an object's members, or an array's items by their places, that are possible after those that were read. What
 * a member may be differs by way: of two ways, one may have the `kind` "text" and a string, the other the `kind` "count" and an
 * integer. Whether "42" is a string is then known by the kind.
 */
export class PossibleWays<Member extends ValueTypes> {
  #ways: readonly Way<Member>[];
  #name = '';
  /** What was read of the member's JSON, up to where it is too long to be compared. */
  #json = '';

  constructor(ways: readonly Way<Member>[]) {
    this.#ways = ways;
  }

  /** The value of this member follows. Returns what it may be in the ways that have such a member, each once. */
  begin(name: string): readonly Member[] {
    this.#name = name;
    this.#json = '';
    return [...new Set(this.#ways.flatMap((way) => way(name) ?? []))];
  }

  /** More of the value's JSON. Once it is `complete`, the ways that allow it remain. */
  read(json: string, complete: boolean): void {
    if (this.#json.length <= MAX_COMPARED) this.#json += json;
    if (!complete) return;
    const kept = this.#ways.filter((way) => {
      const member = way(this.#name);
      return member !== undefined && allows(member, this.#json);
    });
    // None allows it where no grammar constrained the text, or where a value before it was read as another way has it: all remain.
    if (kept.length > 0) this.#ways = kept;
  }
}

/** The members of one object, or the items of one array by their places, as the way of giving them. `nodes`: what the parts point into. */
export function membersOf<Member>({ named = {}, others }: NodeParts, nodes: readonly Member[]): Way<Member> {
  return (name) => {
    const number = Object.hasOwn(named, name) ? named[name] : others;
    return number === undefined ? undefined : nodes[number];
  };
}

/** What a value may be that is one of these. */
export function united(all: readonly ValueTypes[]): Pick<ValueTypes, 'types' | 'scalars'> {
  const types = [...new Set(all.flatMap((each) => each.types))];
  if (all.every(({ scalars }) => scalars === undefined)) return { types };
  return { types, scalars: all.flatMap((each) => each.scalars ?? [{ types: each.types }]) };
}

/** By the first character of their JSON. All else are numbers. */
const TYPE_BY_FIRST: Readonly<Record<string, ValueType>> = {
  '{': 'object',
  '[': 'array',
  '"': 'string',
  t: 'boolean',
  f: 'boolean',
  n: 'null',
};

function allows({ types, values }: ValueTypes, json: string): boolean {
  const type = TYPE_BY_FIRST[json[0] ?? ''] ?? 'number';
  const nested = type === 'object' || type === 'array';
  if (values !== undefined && !nested && json.length <= MAX_COMPARED)
    return values.includes(JSON.stringify(JSON.parse(json)));
  return types.includes(type) || (types.includes('integer') && /^-?\d+$/.test(json));
}
