/**
 * The bound on the work of compiling the tools of one request to a grammar.
 *
 * A schema of a few kilobytes can have millions of combinations, so neither its size nor the size of the grammar bounds
 * the work. So each step of the compiler is counted before it is done.
 */

/**
 * Steps for all tools of one request. A step takes 10 to 60 ns, so all of them at most 8 ms; bench/results/expensive-schemas.md has
 * what the refusal of tools past the bound takes in all. It cannot be lower: the 24 tools that the MCP server of Notion lists take
 * 115,300 (test/engine/grammar/recorded-schemas.test.ts), and generated tools that nearly fill the largest grammar
 * (MAX_GRAMMAR_CHARACTERS) take 97,000 (test/engine/grammar/work.test.ts). Combinations that are multiplied out take more; where one
 * of them is past the bound by itself, it is refused before it is begun.
 */
export const MAX_WORK = 140_000;

/**
 * Steps for the patterns and formats of one request besides. Those for which they do not suffice are not enforced, so a request is
 * never refused for its patterns. Their rules are counted here too.
 */
export const MAX_PATTERN_WORK = 640_000;

/**
 * Steps that the compiler may take where a request is worked on in turn with others, about 1 to 2 ms. Tools that take more
 * are compiled in a thread of their own, so that no other request waits for them.
 */
export const QUICK_WORK = 40_000;

/** Steps of one value of a schema, read or not: what the compiler ignores is still rendered into the prompt. */
const WEIGH_STEPS = 4;
const CHARACTERS_A_STEP = 8;

/**
 * A schema that cannot be served; caught where the grammar is made. `message`: the reason, without any of the caller's
 * text. `fault`: the keyword that causes it, or the path of the schema that has it.
 */
export class Unservable extends Error {
  readonly fault: Fault | readonly string[] | undefined;

  constructor(message: string, fault?: Fault | readonly string[]) {
    super(message);
    this.fault = fault;
  }
}

/** Counts the steps of one request's grammar. */
export class WorkBudget {
  #spent = 0;
  #patterns = 0;
  #limit = MAX_WORK + MAX_PATTERN_WORK;

  /** Steps so far, without those of patterns. */
  get spent(): number {
    return this.#spent;
  }

  /** Steps so far of patterns. */
  get patterns(): number {
    return this.#patterns;
  }

  /** More steps are needed than {@link limit} allowed, but not more than {@link MAX_WORK} so far. */
  get stopped(): boolean {
    return this.#spent + this.#patterns > this.#limit && this.#spent <= MAX_WORK;
  }

  /** The request has no step left, whichever of its schemas took them. */
  get exhausted(): boolean {
    return this.#spent > MAX_WORK;
  }

  /** Allows so many steps more, within {@link MAX_WORK} and {@link MAX_PATTERN_WORK}. */
  limit(steps: number): void {
    this.#limit = Math.min(MAX_WORK + MAX_PATTERN_WORK, this.#spent + this.#patterns + steps);
  }

  /** Counts steps that are about to be done. Throws Unservable past {@link MAX_WORK}, or past {@link limit}. */
  spend(steps: number): void {
    this.#spent += steps;
    if (this.#spent > MAX_WORK || this.#spent + this.#patterns > this.#limit) {
      throw new Unservable('has too many values, alternatives or combinations of them.');
    }
  }

  /**
   * To be called before work that takes at least so many steps, which will be counted as they are done: throws at once, as
   * {@link spend} would later, where these are not left.
   */
  foresee(steps: number): void {
    const spent = this.#spent + steps;
    if (spent > MAX_WORK || spent + this.#patterns > this.#limit) this.spend(steps);
  }

  /** The same for a pattern. False: past {@link MAX_PATTERN_WORK}, so that it must not be done. */
  spendPattern(steps: number): boolean {
    if (this.#patterns + steps > MAX_PATTERN_WORK) return false;
    this.#patterns += steps;
    this.spend(0);
    return true;
  }

  /** As {@link spend}, for characters that are read, copied and compared. */
  spendText(characters: number): void {
    this.spend(Math.ceil(characters / CHARACTERS_A_STEP));
  }

  /** Counts each value within `tools`, whether the compiler reads it or not. */
  weigh(tools: unknown): void {
    const open: unknown[] = [tools];
    while (open.length > 0) {
      const value = open.pop();
      if (typeof value !== 'object' || value === null) continue;
      if (Array.isArray(value)) {
        this.spend(WEIGH_STEPS * value.length);
        for (const each of value) if (typeof each === 'object') open.push(each);
        continue;
      }
      // Counted one by one: to list all values of an object of 100,000 names takes longer than all that may follow.
      for (const name in value) {
        this.spend(WEIGH_STEPS);
        const each = (value as Readonly<Record<string, unknown>>)[name];
        if (typeof each === 'object') open.push(each);
      }
    }
  }
}

/**
 * `why`: the predicate of a sentence about the problem, without any of the caller's text. `path`: of the schema that the
 * sentence is about, from the root on; may hold names that the caller chose. Absent: it is about the root.
 */
export interface NoGrammar {
  readonly kind: 'unservable';
  readonly why: string;
  readonly path?: readonly string[];
}

/** The result of `make`; an {@link Unservable} that it throws is returned too, with its place in `root`. */
export function unlessUnservable<T>(make: () => T, root?: unknown): T | NoGrammar {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof Unservable)) throw error;
    const { message: why, fault } = error;
    const path = fault && ('keyword' in fault ? keywordPath(root, fault) : fault);
    return { kind: 'unservable', why, ...(path && { path }) };
  }
}

/** Finds the place in a schema whose keyword a grammar cannot enforce. */

/** A keyword that cannot be enforced, with those of its values that cannot. */
interface Fault {
  readonly keyword: string;
  readonly offends: (value: unknown) => boolean;
}

/** Definitions come first: a reference from the root may have been put in its place, and the caller wrote it there. */
const MAPS = ['$defs', 'definitions', 'properties', 'patternProperties'];
const LISTS = ['prefixItems', 'allOf', 'anyOf', 'oneOf'];
/** Draft 4 has a list in `items`. */
const SCHEMAS = ['items', 'additionalItems', 'additionalProperties', 'propertyNames', 'not'];

type Members = Readonly<Record<string, unknown>>;

/**
 * The path of the first schema that has such a keyword, in the order of the lists above; undefined if there is none.
 * Values that are not schemas (`default`, `examples`, `const`) are not searched. The path may contain names that the
 * caller chose. Takes as many steps as there are values, which the weight of a request's tools bounds.
 */
function keywordPath(schema: unknown, { keyword, offends }: Fault): readonly string[] | undefined {
  const open: { readonly at: unknown; readonly path: readonly string[] }[] = [{ at: schema, path: [] }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { at, path } = next;
    if (!isMembers(at)) continue;
    if (Object.hasOwn(at, keyword) && offends(at[keyword])) return path;
    const inner = innerSchemas(at).map(({ at: found, path: steps }) => ({ at: found, path: [...path, ...steps] }));
    open.push(...inner.reverse());
  }
  return undefined;
}

function innerSchemas(schema: Members): { readonly at: unknown; readonly path: readonly string[] }[] {
  const within = (name: string): { readonly at: unknown; readonly path: readonly string[] }[] =>
    Object.entries(schema[name] as Members).map(([key, at]) => ({ at, path: [name, key] }));
  const found = [...MAPS.filter((name) => isMembers(schema[name])), ...LISTS.filter((name) => isList(schema[name]))];
  const single = SCHEMAS.filter((name) => Object.hasOwn(schema, name));
  return [
    ...found.flatMap(within),
    ...single.flatMap((name) => (isList(schema[name]) ? within(name) : [{ at: schema[name], path: [name] }])),
  ];
}

function isList(value: unknown): boolean {
  return Array.isArray(value);
}

function isMembers(value: unknown): value is Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
