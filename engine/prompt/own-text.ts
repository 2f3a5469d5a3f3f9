/** Which texts a template wrote itself while it is rendered, so that its special texts are marked and callers' are not. */
import { UNMARKED, type Marking } from './data-text.js';
import type { Statement, Value } from './jinja-library.js';
import { isList, plainText, toValue } from './jinja-values.js';

/**
 * A text that is being written: `head` and `tail` behind it. The tail, at most as long as the longest special text, is the
 * template's own, and only it can become part of a special text that the template completes. It stands apart since the head may be
 * a long conversation, which must not be copied for each text behind it.
 */
export interface Writing {
  head: string;
  tail: string;
  /** How many characters at the end, tail included, are the template's own. */
  own: number;
}

export function newWriting(): Writing {
  return { head: '', tail: '', own: 0 };
}

/** How a value was written of which at least the end is the template's own. In the value, since a WeakMap keeps those of past renderings. */
const WRITTEN = Symbol('written');
type Written = Value & { [WRITTEN]?: Writing };

/** A template's own texts under one marking. */
export class OwnText {
  readonly marking: Marking;
  /** Its literals, each made once: the library's constructors take most of the time of a short rendering. */
  readonly #literals = new WeakMap<Statement, Value>();

  constructor(marking: Marking = UNMARKED) {
    this.marking = marking;
  }

  /** The value of a text in the template's source. `make` has the library make it. */
  literal(node: Statement, make: () => Value): Value {
    const known = this.#literals.get(node);
    if (known !== undefined) return known;
    const made = this.#claimed(make());
    this.#literals.set(node, made);
    return made;
  }

  /**
   * The value of a variable. A message's role counts as the template's own text, since the contract allows a few roles and no caller
   * can choose another text.
   */
  variable(name: string, item: unknown): Value {
    if (OWN_VARIABLES.has(name)) return this.#claimed(toValue(String(item)));
    const value = toValue(item);
    if (name !== 'messages' || !isList(value)) return value;
    for (const message of value.value) {
      const role = (message.value as ReadonlyMap<string, Value>).get('role');
      if (role?.type === 'StringValue') this.#record(role, role.value as string);
    }
    return value;
  }

  /** Writes `text`, which is what `value` is written as, behind what is there. */
  write(writing: Writing, text: string, value: Value): void {
    if (text === '') return;
    if (this.#isOwn(value)) {
      this.#writeOwn(writing, text);
      return;
    }
    const { head, tail, own } = (value as Written)[WRITTEN] ?? { head: text, tail: '', own: 0 };
    writing.head += writing.tail + head;
    writing.tail = tail;
    writing.own = own;
  }

  /** Two values, as they are written, as one. */
  joined(left: Value, right: Value): Value {
    const writing = newWriting();
    this.write(writing, plainText(left), left);
    this.write(writing, plainText(right), right);
    return this.written(writing);
  }

  written(writing: Writing): Value {
    const value = toValue(writing.head + writing.tail);
    if (writing.own > 0) (value as Written)[WRITTEN] = { ...writing };
    return value;
  }

  /**
   * What `make` makes of values, such as a filter of its operand and arguments. Of the template's own texts alone it makes one, for
   * which it is given them without marks.
   */
  made(values: readonly Value[], make: (values: readonly Value[]) => Value): Value {
    if (this.marking.mark === '' || !values.every((value) => this.#isOwn(value))) return make(values);
    const value = make(values.map((each) => this.#unmarked(each)));
    return value.type === 'StringValue' && (value as Written)[WRITTEN] === undefined ? this.#claimed(value) : value;
  }

  /** Where text before it is the template's own too, special texts that both make together are, as `<|` and a role. */
  #writeOwn(writing: Writing, text: string): void {
    const { specials } = this.marking;
    const { tail } = writing;
    const behind = tail + text;
    const crosses = tail !== '' && specials.occursIn(tail + text.slice(0, specials.longest));
    const own = crosses ? this.marking.marked(behind) : behind;
    const from = Math.max(0, own.length - specials.longest);
    writing.head += own.slice(0, from);
    writing.tail = own.slice(from);
    writing.own += own.length - tail.length;
  }

  /** Numbers and the like can be part of no special text that a caller chooses. */
  #isOwn(value: Value): boolean {
    if (value.type === 'StringValue') {
      const { length } = value.value as string;
      return length === 0 || (value as Written)[WRITTEN]?.own === length;
    }
    return isList(value) ? value.value.every((item) => this.#isOwn(item)) : SCALARS.has(value.type);
  }

  #unmarked(value: Value): Value {
    const { mark } = this.marking;
    const hasMark = value.type === 'StringValue' && (value.value as string).includes(mark);
    return hasMark ? toValue((value.value as string).replaceAll(mark, '')) : value;
  }

  /** The value as the template's own, with marks. */
  #claimed(value: Value): Value {
    const text = this.marking.marked(value.value as string);
    const claimed = text === value.value ? value : toValue(text);
    this.#record(claimed, text);
    return claimed;
  }

  #record(value: Value, text: string): void {
    const writing = newWriting();
    this.#writeOwn(writing, text);
    (value as Written)[WRITTEN] = writing;
  }
}

/** Variables with special texts of the model's. */
const OWN_VARIABLES: ReadonlySet<string> = new Set(['bos_token', 'eos_token']);

const SCALARS: ReadonlySet<string> = new Set([
  'IntegerValue',
  'FloatValue',
  'BooleanValue',
  'NullValue',
  'UndefinedValue',
]);
