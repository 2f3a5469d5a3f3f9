/** The renderer for chat templates, and the variables and functions that every template has. */
import { formatDate } from './dates.js';
import { itemsOf } from './jinja-items.js';
import { FullInterpreter, type Literals } from './jinja-interpreter.js';
import { Environment, parse, tokenize, type Scope, type Statement, type Value } from './jinja-library.js';
import { readSource } from './jinja-source.js';
import { withTestOperators } from './jinja-tests.js';
import { Callable, Mapping, toValue } from './jinja-values.js';

/** Longest list that `range` makes: no known template needs more. */
const MAX_RANGE = 100_000;

/** A parsed template. */
export class JinjaTemplate {
  readonly #program: Statement;
  /** Its texts as values, each made once: the library's constructors take most of the time of a short rendering. */
  readonly #literals: Literals = new WeakMap();

  /** Throws a SyntaxError when the source does not parse. */
  constructor(source: string) {
    this.#program = parse(withTestOperators(tokenize(readSource(source))));
  }

  /**
   * `items`: the template's variables, plain JSON values. Throws if the template throws, or for unsupported features.
   */
  render(items: Readonly<Record<string, unknown>>): string {
    const scope = new Environment(AROUND);
    for (const name of Object.keys(items)) scope.declareVariable(name, toValue(items[name]));
    return new FullInterpreter(scope, this.#literals).run(this.#program).toString();
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
