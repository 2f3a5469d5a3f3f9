/** The renderer for chat templates, and the variables and functions that every template has. */
import { formatDate } from './dates.js';
import { UNMARKED, type Marking } from './data-text.js';
import { Callable, itemsOf, Mapping } from './jinja-values.js';
import { FullInterpreter } from './jinja-interpreter.js';
import { Environment, parse, tokenize, type Scope, type Statement, type Value } from './jinja-library.js';
import { withTestOperators } from './jinja-functions.js';
import { OwnText } from './own-text.js';

/** Longest list that `range` makes: no known template needs more. */
const MAX_RANGE = 100_000;

/** Marks whose texts are kept: none, and the first ones. Others are taken only if callers' text has these in it. */
const MAX_KEPT = 5;

export class JinjaTemplate {
  readonly #program: Statement;
  /** Its texts under the markings that it was rendered with, by mark. */
  readonly #own = new Map<string, OwnText>();

  /** Throws a SyntaxError when the source does not parse. */
  constructor(source: string) {
    this.#program = parse(withTestOperators(tokenize(readSource(source))));
  }

  /**
   * `items`: the template's variables, plain JSON values. Throws if the template throws, or for unsupported features.
   */
  render(items: Readonly<Record<string, unknown>>, marking: Marking = UNMARKED): string {
    const own = this.#ownText(marking);
    const scope = new Environment(AROUND);
    for (const name of Object.keys(items)) scope.declareVariable(name, own.variable(name, items[name]));
    return new FullInterpreter(scope, own).run(this.#program).toString();
  }

  #ownText(marking: Marking): OwnText {
    const kept = this.#own.get(marking.mark);
    if (kept?.marking.specials === marking.specials) return kept;
    const own = new OwnText(marking);
    if (this.#own.size < MAX_KEPT) this.#own.set(marking.mark, own);
    return own;
  }
}

/** Globals of all templates. A template has its own scope, so they are never written to. */
class Around extends Environment {
  constructor() {
    super();
    for (const name of Object.keys(GLOBALS)) this.set(name, GLOBALS[name]);
    this.declareVariable('dict', new Callable(makeMapping));
  }

  /**
   * An unknown name is undefined in any case; creating the library's error with its stack takes longer than a loop
   * iteration.
   */
  override resolve(): Scope {
    return this;
  }
}

/** Python's `dict`: of mappings, lists of pairs and what is given by name. */
function makeMapping(args: readonly Value[]): Value {
  const members = args.flatMap((arg) =>
    arg.value instanceof Map ? [...(arg.value as ReadonlyMap<string, Value>)] : itemsOf(arg).map(pairOf),
  );
  return new Mapping(new Map(members));
}

function pairOf(value: Value): [string, Value] {
  const [name, member, ...rest] = itemsOf(value);
  if (name?.type !== 'StringValue' || member === undefined || rest.length > 0)
    throw new Error('no pair of a name and a value');
  return [name.toString(), member];
}

const GLOBALS: Readonly<Record<string, unknown>> = {
  true: true,
  false: false,
  none: null,
  True: true,
  False: false,
  None: null,
  raise_exception: (message: unknown) => {
    throw new Error(String(message));
  },
  range: (first: number, second?: number, step = 1) => {
    const [from, to] = second === undefined ? [0, first] : [first, second];
    const length = Math.max(0, Math.ceil((to - from) / step));
    if (!(length <= MAX_RANGE)) throw new Error('range is too long');
    return Array.from({ length }, (_, i) => from + i * step);
  },
  strftime_now: (format: string) => formatDate(new Date(), format),
};

const AROUND = new Around();

/** A template's source as the library's lexer takes it, with what Jinja's lexer reads in addition. */

const STRING = /'(?:\\[\s\S]|[^'\\])*'|"(?:\\[\s\S]|[^"\\])*"/g;

/** A comment, or a tag with its strings. */
const TAG = new RegExp(`\\{#[\\s\\S]*?#\\}|\\{[{%](?:${STRING.source}|[^'"])*?[%}]\\}`, 'g');

const RAW = /(^[ \t]*)?\{%([-+]?)\s*raw\s*(-?)%\}([\s\S]*?)\{%([-+]?)\s*endraw\s*([-+]?)%\}(\n?)/gm;

/** Characters that begin an escape sequence in Python. After others a backslash stands for itself. */
const ESCAPED = '\\\'"abfnrtvxuUN01234567\n';

function readSource(source: string): string {
  return (
    source
      // Jinja knows one line end alone.
      .replace(/\r\n?/g, '\n')
      .replace(RAW, quoted)
      // White space in front of a block that begins a line, and the line end behind a block, unless there is a `+`.
      .replace(/^[ \t]*(\{[%#])(?!\+)/gm, '$1')
      .replace(/([^+][%#]\})\n/g, '$1')
      .replace(/\{%\+/g, '{%')
      .replace(/\+%\}/g, '%}')
      .replace(TAG, (tag) => (tag.startsWith('{#') ? tag : tag.replace(STRING, withEscapes)))
  );
}

function withEscapes(literal: string): string {
  return literal.replace(/\\([\s\S])/g, (all, next: string) => (ESCAPED.includes(next) ? all : `\\${all}`));
}

/** The text of a `raw` block as an expression. */
function quoted(
  _: string,
  indent: string | undefined,
  before: string,
  afterStart: string,
  text: string,
  beforeEnd: string,
  after: string,
  lineEnd: string,
): string {
  const start = afterStart === '-' ? text.trimStart() : text;
  const whole = beforeEnd === '-' ? start.trimEnd() : beforeEnd === '+' ? start : start.replace(/\n[ \t]+$/, '\n');
  const literal = whole.replace(/[^\w ]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const [open, close] = [before === '-' ? '{{-' : '{{', after === '-' ? '-}}' : '}}'];
  return `${before === '+' ? (indent ?? '') : ''}${open} '${literal}' ${close}${after === '+' ? lineEnd : ''}`;
}
