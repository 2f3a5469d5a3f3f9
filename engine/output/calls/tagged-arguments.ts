/**
 * Reads arguments that are written one by one between marks, as XML-like formats do, and returns them as JSON.
 *
 *     gap --open--> name --between--> value --close--> gap --close or next of the call--> complete
 */
import type { TaggedArguments, ValueNode, ValueType } from '../../protocol/reply-format.js';
import type { ArgumentsPart, ArgumentsReader } from './arguments-reader.js';
import { ExpectedText } from './expected-text.js';
import { membersOf, PossibleWays, united } from './possible-ways.js';
import { TaggedValue } from './tagged-value.js';

/** The longest name of a parameter, so that text that no grammar constrains is not buffered without a bound. */
const MAX_PARAMETER_NAME = 1024;

const ANY: readonly ValueType[] = ['string', 'object', 'array', 'number', 'boolean', 'null'];

export class TaggedReader implements ArgumentsReader {
  readonly #syntax: TaggedArguments;
  readonly #ways: PossibleWays<ValueNode>;
  /** The distinct texts between name and value, and the types that each stands for. */
  readonly #betweens: readonly { readonly text: string; readonly types: readonly string[] }[];
  readonly #ends: readonly string[];
  #state: 'gap' | 'name' | 'between' | 'value' | 'over' = 'gap';
  #expected: ExpectedText;
  #raw = '';
  #name = '';
  #value: TaggedValue | undefined;
  #written = 0;
  after: 0 | 1 | 'failed' | undefined;
  rest = '';

  /**
   * `values`: of each function of the call's name. `ends`: what closes the call, and, if calls can follow each other, what leads on to
   * the next one.
   */
  constructor(syntax: TaggedArguments, values: readonly (readonly ValueNode[])[], ends: readonly string[]) {
    this.#syntax = syntax;
    this.#ways = new PossibleWays(
      values.flatMap((nodes) => (nodes[0]?.objects ?? []).map((parts) => membersOf(parts, nodes))),
    );
    this.#ends = ends;
    const texts = [...new Set(Object.values(syntax.between))];
    this.#betweens = texts.map((text) => ({
      text,
      types: Object.entries(syntax.between).flatMap(([type, own]) => (own === text ? [type] : [])),
    }));
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
        return this.#expect(text);
      case 'name':
        return this.#readName(text);
      case 'value':
        return this.#readValue(text);
      case 'over':
        return { json: '', used: 0 };
    }
  }

  #gap(): ExpectedText {
    return new ExpectedText([this.#syntax.open, ...this.#ends]);
  }

  #expect(text: string): ArgumentsPart {
    let used = 0;
    for (const unit of text) {
      used += unit.length;
      this.#raw += unit;
      const progress = this.#expected.take(unit);
      if (progress === 'more') continue;
      if (progress === 'failed') return { json: this.#end('failed'), used };
      return { json: this.#matched(progress), used };
    }
    return { json: '', used };
  }

  #matched(which: number): string {
    this.#raw = '';
    if (this.#state === 'gap') {
      if (which > 0) return this.#end(which === 1 ? 0 : 1);
      this.#state = 'name';
      this.#name = '';
      return '';
    }
    const { text, types } = this.#betweens[which] ?? { text: '', types: [] };
    const { types: declared, scalars } = united(this.#ways.begin(this.#name));
    const possible = (declared.length > 0 ? declared : ANY).filter((type) =>
      types.includes(type === 'integer' ? 'number' : type),
    );
    const may = { types: possible, ...(scalars && { scalars }) };
    this.#value = new TaggedValue(may, { before: text, ...this.#syntax });
    this.#state = 'value';
    const lead = this.#written === 0 ? '{' : ', ';
    this.#written += 1;
    return `${lead}${JSON.stringify(this.#name)}: `;
  }

  #end(after: 0 | 1 | 'failed'): string {
    this.#state = 'over';
    this.after = after;
    this.rest = this.#raw;
    return this.#written === 0 ? '{}' : '}';
  }

  /** The name ends where the first unit of what follows it stands: no name that the grammar allows has that in it. */
  #readName(text: string): ArgumentsPart {
    const first = this.#betweens.map((between) => between.text.trimStart()[0] ?? '');
    let end = 0;
    while (end < text.length && !first.includes(text[end] ?? '')) end += 1;
    this.#name += text.slice(0, end);
    if (this.#name.length > MAX_PARAMETER_NAME) {
      this.#raw = this.#name;
      return { json: this.#end('failed'), used: end };
    }
    if (end < text.length) {
      this.#name = this.#name.trim();
      this.#state = 'between';
      this.#expected = new ExpectedText(this.#betweens.map((between) => between.text));
    }
    return { json: '', used: end };
  }

  #readValue(text: string): ArgumentsPart {
    const value = this.#value;
    if (value === undefined) return { json: '', used: 0 };
    const part = value.take(text);
    this.#ways.read(part.json, value.complete);
    if (value.complete) {
      this.#state = 'gap';
      this.#expected = this.#gap();
    }
    return part;
  }
}
