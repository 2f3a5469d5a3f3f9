/** Which texts a template wrote itself while it is rendered, so that its special texts are marked and callers' are not. */
import { UNMARKED, type Marking } from './data-text.js';
import type { Statement, Value } from './jinja-library.js';
import { isList, toValue } from './jinja-values.js';

/** A text that is being written. */
export interface Writing {
  text: string;
  /** How many characters at its end are the template's own. */
  own: number;
}

/** A template's own texts under one marking. */
export class OwnText {
  readonly marking: Marking;
  /** Its literals, each made once: the library's constructors take most of the time of a short rendering. */
  readonly #literals = new WeakMap<Statement, Value>();
  /** How many characters at a value's end are the template's own. */
  readonly #ends = new WeakMap<Value, number>();

  constructor(marking: Marking = UNMARKED) {
    this.marking = marking;
  }

  /** The value of a text in the template's source. `make` has the library make it. */
  literal(node: Statement, make: () => Value): Value {
    const known = this.#literals.get(node);
    if (known !== undefined) return known;
    const made = make();
    const value = this.marking.specials.occursIn(made.toString())
      ? toValue(this.marking.marked(made.toString()))
      : made;
    this.#literals.set(node, value);
    return this.#claimed(value);
  }

  /** A variable's value. Of a message the role is ours: it is one of few, whoever wrote the message. */
  variable(name: string, item: unknown): Value {
    if (OWN_VARIABLES.has(name)) return this.#claimed(toValue(this.marking.marked(String(item))));
    const value = toValue(item);
    if (name !== 'messages' || !isList(value)) return value;
    for (const message of value.value) {
      const role = (message.value as ReadonlyMap<string, Value>).get('role');
      if (role !== undefined) this.#claimed(role);
    }
    return value;
  }

  /**
   * Writes `text`, which is what `value` is written as, behind what is there. Where both are the template's own, special texts
   * that they make together are too, as `<|` and a role.
   */
  write(writing: Writing, text: string, value: Value): void {
    if (text === '') return;
    const own = this.#ends.get(value) ?? 0;
    if (own < text.length) {
      writing.text += text;
      writing.own = own;
      return;
    }
    const { specials } = this.marking;
    const before = writing.text.slice(writing.text.length - Math.min(writing.own, specials.longest));
    if (before !== '' && specials.occursIn(before + text.slice(0, specials.longest))) {
      const marked = this.marking.marked(before + text);
      writing.text = writing.text.slice(0, -before.length) + marked;
      writing.own += marked.length - before.length;
    } else {
      writing.text += text;
      writing.own += text.length;
    }
  }

  /** Two texts as one. */
  joined(left: Value, right: Value): Value {
    const text = left.toString();
    const writing = { text, own: this.#ends.get(left) ?? 0 };
    this.write(writing, right.toString(), right);
    return this.written(writing);
  }

  /** What was written as a value. */
  written({ text, own }: Writing): Value {
    const value = toValue(text);
    if (own > 0) this.#ends.set(value, own);
    return value;
  }

  #claimed(value: Value): Value {
    if (typeof value.value === 'string') this.#ends.set(value, value.value.length);
    return value;
  }
}

/** Variables with special texts of the model's. */
const OWN_VARIABLES: ReadonlySet<string> = new Set(['bos_token', 'eos_token']);
