/** Rules on their way to GBNF, while some of them may still turn out to match nothing. */

/** GBNF as it is, or a rule by its name, `least` to `most` times (absent: once). */
export type Item = string | { readonly rule: string; readonly least?: number; readonly most?: number };

export type Alternative = readonly Item[];

/** Rules by name, each with its alternatives; none at all: it matches nothing. */
export class Rules {
  readonly #rules = new Map<string, readonly Alternative[]>();

  /** Has these alternatives from now on. Names that begin with `json-` are known already. */
  set(name: string, alternatives: readonly Alternative[]): void {
    this.#rules.set(name, alternatives);
  }

  /** The rules that `root` needs as lines of GBNF, less what matches nothing; undefined when `root` matches nothing. */
  lines(root: string): string[] | undefined {
    const empty = this.#empty();
    if (empty.has(root)) return undefined;
    const lines: string[] = [];
    // A set hands out what is added to it on the way.
    const needed = new Set([root]);
    for (const name of needed) {
      const alternatives = (this.#rules.get(name) ?? [])
        .filter((alternative) => matches(alternative, empty))
        .map((alternative) => alternative.filter((item) => !isEmpty(item, empty)));
      for (const item of alternatives.flat()) if (typeof item !== 'string') needed.add(item.rule);
      if (alternatives.length > 0) lines.push(`${name} ::= ${[...new Set(alternatives.map(text))].join(' | ')}`);
    }
    return lines;
  }

  /** The rules that match nothing: those whose every alternative needs one that matches nothing, or itself without end. */
  #empty(): Set<string> {
    const empty = new Set(this.#rules.keys());
    // Rules are made from the outside in, so that most are settled in the first round.
    const order = [...this.#rules].reverse();
    for (let changed = true; changed;) {
      changed = false;
      for (const [name, alternatives] of order) {
        if (!empty.has(name) || !alternatives.some((alternative) => matches(alternative, empty))) continue;
        empty.delete(name);
        changed = true;
      }
    }
    return empty;
  }
}

function isEmpty(item: Item, empty: ReadonlySet<string>): boolean {
  return typeof item !== 'string' && empty.has(item.rule);
}

function matches(alternative: Alternative, empty: ReadonlySet<string>): boolean {
  return alternative.every((item) => !isEmpty(item, empty) || (typeof item !== 'string' && item.least === 0));
}

function text(alternative: Alternative): string {
  return alternative.length === 0 ? '""' : alternative.map(itemText).join(' ');
}

function itemText(item: Item): string {
  if (typeof item === 'string') return item;
  const { rule, least, most } = item;
  if (least === undefined) return rule;
  return `${rule}{${least},${most === undefined || most === Infinity ? '' : most}}`;
}
