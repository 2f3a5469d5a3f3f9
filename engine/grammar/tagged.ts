/**
 * The grammar of arguments that are written one by one between marks (TaggedArguments): each in the order of the schema,
 * optional ones there or not. Each value is constrained by its schema, a string, which stands without quotes, to its enum, patterns,
 * formats and length. Other parameters than those declared are not offered where there are declared ones; where there are
 * none, and the schema allows others, they may have any name of letters and digits.
 */
import type { ParameterWay, TaggedArguments, ValueType } from '../protocol/reply-format.js';
import { choiceRule, EnumValues } from './choice.js';
import { inClass, literal, textUpTo, type GrammarPart, type OptionalRule, type Rule } from './gbnf.js';
import { OTHER_NAME } from './loose-notation.js';
import { argumentWays, typesOf, valueTypesOf, type FreeMap, type Parameter, type ParameterList } from './parameters.js';
import { MAX_COUNTED, overCounted } from './scalar-rules.js';
import { schemaGrammar } from './schema.js';
import type { Range, Schema, Shape } from './shape.js';
import { SharedTexts } from './shared-texts.js';
import { spaced } from './spaced.js';
import { Shapes } from './shapes.js';
import { AFTER_VALUE, TEXT_STACKS } from './stacks.js';
import { isAnyText, unquotedText } from './unquoted-text.js';
import { Unservable, unlessUnservable, type NoGrammar, type WorkBudget } from './work.js';

export type TaggedGrammar =
  ({ readonly kind: 'ok'; readonly stacks: number; readonly types: readonly ParameterWay[] } & GrammarPart) | NoGrammar;

const ANY_LENGTH: Range = { least: 0, most: Infinity };

/** Steps of a rule, as in schema.ts. */
const RULE_STEPS = 12;

/** The arguments of one function. `prefix`: what its rules' names begin with. `work`: what is left of the request's. */
export function taggedGrammar(
  parameters: unknown,
  syntax: TaggedArguments,
  prefix: string,
  work: WorkBudget,
): TaggedGrammar {
  return unlessUnservable(() => new TaggedRules(parameters, syntax, prefix, work).make(), parameters);
}

class TaggedRules {
  readonly #root: unknown;
  readonly #syntax: TaggedArguments;
  readonly #prefix: string;
  readonly #work: WorkBudget;
  readonly #rules = new Set<Rule>();
  #made = 0;
  #stacks = 1;

  constructor(root: unknown, syntax: TaggedArguments, prefix: string, work: WorkBudget) {
    this.#root = root;
    this.#syntax = syntax;
    this.#prefix = prefix;
    this.#work = work;
  }

  make(): TaggedGrammar {
    const ways: string[] = [];
    const types: ParameterWay[] = [];
    for (const { list, free, members } of argumentWays(this.#root, this.#work)) {
      const way = free ? this.#free(free, members) : this.#list(list, members.least > 0);
      if (way === undefined) continue;
      ways.push(way);
      const named = free ? [{ name: '', ...free }] : list;
      types.push(named.map((own) => ({ name: own.name, ...valueTypesOf(own) })));
    }
    if (ways.length === 0) throw new Unservable('allows no value.');
    const rule = this.#rule(ways.join(' | '));
    return { kind: 'ok', rule, rules: [...this.#rules], stacks: this.#stacks * ways.length, types };
  }

  /** From the last to the first; undefined: one that must be there can have no value. `some`: there is one at least. */
  #list(list: ParameterList, some: boolean): string | undefined {
    let next = this.#rule('call-gap');
    let first = some ? undefined : next;
    let row = 1;
    for (const parameter of [...list].reverse()) {
      const rule = this.#parameter(parameter);
      if (rule === undefined && parameter.required) return undefined;
      if (rule === undefined) continue;
      row = parameter.required ? 1 : row + 1;
      this.#stacks = Math.max(this.#stacks, row + AFTER_VALUE);
      const one = `call-gap ${rule} ${next}`;
      next = this.#rule(parameter.required ? one : `${one} | ${next}`);
      // Where there may be none, it is the same.
      first = some ? this.#rule(parameter.required || first === undefined ? one : `${one} | ${first}`) : next;
    }
    return first;
  }

  /** Any number of arguments of any names; undefined: some must be there and can have no value. */
  #free({ schema, shapes }: FreeMap, { least, most }: Range): string | undefined {
    const ways = this.#ways({ schema, shapes });
    if (ways.length === 0) return least > 0 ? undefined : this.#rule('call-gap');
    if (least > MAX_COUNTED) throw overCounted('minProperties');
    const one = this.#rule(`call-gap ${spaced(this.#syntax.open)} ${OTHER_NAME} (${ways.join(' | ')})`);
    // The end of one may be the beginning of another.
    this.#stacks = Math.max(this.#stacks, 2 + AFTER_VALUE);
    return this.#rule(`${one}{${least},${most > MAX_COUNTED ? '' : most}} call-gap`);
  }

  /** Mark, name, value and closing mark. */
  #parameter({ name, schema, shapes }: Parameter): string | undefined {
    if (/[<>"=\s]|^$/.test(name)) throw new Unservable('has a parameter whose name cannot be written to this model.');
    const ways = this.#ways({ schema, shapes });
    if (ways.length === 0) return undefined;
    return this.#rule(`${spaced(this.#syntax.open)} ${literal(name)} (${ways.join(' | ')})`);
  }

  /** What may stand after a name: by the types that share a text there. */
  #ways({ schema, shapes }: Pick<Parameter, 'schema' | 'shapes'>): string[] {
    const { between } = this.#syntax;
    const types = typesOf({ shapes });
    return Object.values(between)
      .filter((text, i, all) => all.indexOf(text) === i)
      .flatMap((text) => {
        const own = types.filter((type) => between[type === 'integer' ? 'number' : type] === text);
        return this.#values({ schema, shapes }, own, types, text);
      });
  }

  /** What stands after a name where the value is of one of `own`: `between`, the value and its close. */
  #values(
    { schema, shapes }: Pick<Parameter, 'schema' | 'shapes'>,
    own: readonly ValueType[],
    all: readonly ValueType[],
    between: string,
  ): string[] {
    if (own.length === 0) return [];
    const ways: string[] = [];
    const end = spaced(this.#syntax.close);
    const texts = shapes.filter((shape) => shape.types.includes('string') && own.includes('string'));
    const nested = own.filter((type) => type === 'object' || type === 'array');
    const free = texts.filter((shape) => shape.values === undefined);
    const begun = nested.map((type) => `^\\s*\\${type === 'object' ? '{' : '['}`);
    const mark = this.#syntax.close.trim();
    const patterns = free.map((shape) => unquotedText(shape, this.#work, mark, begun));
    // Where any text may stand, it stands for other scalars too.
    const loose = free.some((shape, i) => isAnyText(shape, patterns[i]));
    const json = loose ? nested : own.filter((type) => type !== 'string');
    if (json.length > 0) {
      const part = this.#json(json.length === all.length ? schema : { allOf: [schema], type: json });
      if (part !== undefined) ways.push(`${spaced(between)} ${part} call-gap ${end}`);
    }
    const head = between.trimEnd();
    const lead = `${spaced(head)} ${exactly(between.slice(head.length))}`.trim();
    if (loose) ways.push(`${lead} ${this.#text(ANY_LENGTH, nested)}`);
    for (const [i, { length }] of loose ? [] : free.entries()) {
      const pattern = patterns[i];
      if (pattern === undefined) ways.push(`${lead} ${this.#text(length, nested)}`);
      else if (pattern !== 'none') ways.push(`${lead} ${this.#shared(pattern)} ${exactEnd(this.#syntax.close)}`);
    }
    const values = this.#enum(texts, nested.length > 0);
    if (values.length > 0) ways.push(`${lead} ${this.#choice(values)} ${exactEnd(this.#syntax.close)}`);
    this.#stacks = Math.max(this.#stacks, TEXT_STACKS * (ways.length + 1));
    return [...new Set(ways)];
  }

  #json(schema: Schema): string | undefined {
    const part = schemaGrammar(schema, `${this.#prefix}-v${this.#made++}`, this.#work, this.#root);
    if (part.kind === 'unservable') {
      if (part.why === 'allows no value.') return undefined;
      throw new Unservable(part.why, part.path);
    }
    for (const rule of part.rules) this.#rules.add(rule);
    this.#stacks = Math.max(this.#stacks, part.stacks);
    return part.rule;
  }

  /** Text of so many characters and the closing mark. Where JSON may stand too, it does not begin as that does. */
  #text({ least, most }: Range, nested: readonly ValueType[]): string {
    const mark = this.#syntax.close.trim();
    const [first = ''] = mark;
    const bounded = most <= MAX_COUNTED;
    const begins = nested.map((type) => inClass(type === 'object' ? '{' : '['));
    if (bounded) {
      const character = `[^${inClass(first)}\\n${begins.join('')}]`;
      return `${this.#counted(character, least, most)} ${exactEnd(this.#syntax.close)}`;
    }
    for (const rule of textUpTo(mark, 'call-text', 'call-text-end')) this.#rules.add(rule);
    this.#rules.add('call-text-end ::= ""');
    const lead = Math.min(least, MAX_COUNTED);
    if (begins.length === 0 && lead === 0) return 'call-text-0';
    const opening = `[^${inClass(first)}\\n\\t\\r ${begins.join('')}]`;
    const others = lead > 1 ? `${this.#counted(`[^${inClass(first)}\\n]`, lead - 1, lead - 1)} ` : '';
    const text = `${opening} ${others}call-text-0`;
    return lead > 0 ? text : `(${text} | ${exactEnd(this.#syntax.close)})`;
  }

  #counted(character: string, least: number, most: number): string {
    return this.#shared(SharedTexts.of(this.#work).counted(character, { least, most }));
  }

  #shared(rule: OptionalRule): string {
    this.#rules.add(rule);
    return rule.name;
  }

  /**
   * The strings of enums that the rest of the schema allows. One with the closing mark in it cannot be written, nor one that begins as
   * JSON where JSON may stand too.
   */
  #enum(texts: readonly Shape[], beside: boolean): readonly string[] {
    const values = new EnumValues(new Shapes(this.#root, this.#work), this.#work);
    for (const shape of texts) if (shape.values) values.add({ ...shape, types: ['string'] }, shape.values);
    const written = values.texts().map((text) => JSON.parse(text) as string);
    const mark = this.#syntax.close.trim();
    return written.filter((text) => !text.includes(mark) && !(beside && /^\s*[[{]/.test(text)));
  }

  #choice(texts: readonly string[]): string {
    for (const text of texts) this.#work.spendText(text.length);
    return choiceRule(texts, (text) => this.#rule(text));
  }

  #rule(text: string): string {
    this.#work.spend(RULE_STEPS);
    const name = `${this.#prefix}-t${this.#made++}`;
    this.#rules.add(`${name} ::= ${text}`);
    return name;
  }
}

function exactly(text: string): string {
  return text === '' ? '' : literal(text);
}

/** A closing mark with the line end in front of it that belongs to it: after a text, no other white space does. */
function exactEnd(close: string): string {
  const begun = close.length - close.trimStart().length;
  return `${exactly(close.slice(0, begun))} ${literal(close.trim())}`.trim();
}
