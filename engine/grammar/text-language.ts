/**
 * Regular languages over code points, by their derivatives (Brzozowski 1964; Owens, Reppy and Turon 2009): the derivative by
 * a symbol is the language of what may follow it. Equal languages that are built alike are one object, so that an automaton
 * of few states comes of it, also where languages are combined by "and" and "not".
 */

/** Code points from the first to the second. Past the last code point stand symbols that no text has. */
export type Span = readonly [number, number];

/** Symbols after which the same follows, and one of them. */
export interface SymbolClass {
  readonly symbol: number;
  readonly spans: readonly Span[];
}

/** One set of texts. Made by {@link Languages} alone. */
export interface Language {
  readonly id: number;
  /** Has the empty text. */
  readonly nullable: boolean;
  readonly form: Form;
}

type Form =
  | { readonly kind: 'none' | 'empty' | 'all' }
  | { readonly kind: 'symbol'; readonly spans: readonly Span[] }
  | { readonly kind: 'then'; readonly first: Language; readonly rest: Language }
  | { readonly kind: 'either' | 'both'; readonly of: readonly Language[] }
  | { readonly kind: 'not'; readonly of: Language }
  | { readonly kind: 'times'; readonly of: Language; readonly least: number; readonly most: number };

/** More than there are symbols, and than languages are made. */
const IDS = 2 ** 21;

/** Steps of making a language, and of a derivative. */
const MAKE_STEPS = 12;
const STEP_STEPS = 6;
/** Of each member of a list of languages, which is sorted. */
const SET_STEPS = 6;

/** Makes languages. `spend` is called with steps about to be done, and may throw to stop. */
export class Languages {
  readonly #spend: (steps: number) => void;
  /** By what they are made of. */
  readonly #known = new Map<string | number, Language>();
  readonly #derivatives = new Map<number, Language>();
  /** By the sets of symbols that they come of. */
  readonly #classes = new Map<string, readonly SymbolClass[]>();
  readonly none: Language;
  /** The empty text alone. */
  readonly empty: Language;
  /** Any sequence of symbols. */
  readonly all: Language;

  constructor(spend: (steps: number) => void) {
    this.#spend = spend;
    this.none = this.#make('none', false, { kind: 'none' });
    this.empty = this.#make('empty', true, { kind: 'empty' });
    this.all = this.#make('all', true, { kind: 'all' });
  }

  /** One symbol of these; `spans` in any order. */
  symbol(spans: readonly Span[]): Language {
    this.#spend(SET_STEPS * spans.length);
    const sorted = merged(spans);
    return sorted.length === 0 ? this.none : this.#make(`[${sorted.join()}]`, false, { kind: 'symbol', spans: sorted });
  }

  /** A text of the one and then a text of the other. */
  then(first: Language, rest: Language): Language {
    if (first === this.none || rest === this.none) return this.none;
    if (first === this.empty) return rest;
    if (rest === this.empty || (first === this.all && rest === this.all)) return first;
    if (first.form.kind === 'then') return this.then(first.form.first, this.then(first.form.rest, rest));
    return this.#make(first.id * IDS + rest.id, first.nullable && rest.nullable, { kind: 'then', first, rest });
  }

  either(languages: readonly Language[]): Language {
    const of = this.#set('either', this.#joined(languages), this.none);
    if (of.includes(this.all)) return this.all;
    const [only = this.none] = of;
    if (of.length < 2) return only;
    const nullable = of.some((language) => language.nullable);
    return this.#make(`|${ids(of)}`, nullable, { kind: 'either', of });
  }

  /** With one of several sets of symbols, which then have the same derivatives. */
  #joined(languages: readonly Language[]): readonly Language[] {
    const spans = languages.flatMap(({ form }) => (form.kind === 'symbol' ? form.spans : []));
    if (spans.length < 2) return languages;
    return [this.symbol(spans), ...languages.filter(({ form }) => form.kind !== 'symbol')];
  }

  both(languages: readonly Language[]): Language {
    const of = this.#set('both', languages, this.all);
    if (of.includes(this.none)) return this.none;
    const [only = this.all] = of;
    if (of.length < 2) return only;
    const nullable = of.every((language) => language.nullable);
    return this.#make(`&${ids(of)}`, nullable, { kind: 'both', of });
  }

  not(of: Language): Language {
    if (of === this.none) return this.all;
    if (of === this.all) return this.none;
    return of.form.kind === 'not' ? of.form.of : this.#make(`!${of.id}`, !of.nullable, { kind: 'not', of });
  }

  /** `least` to `most` texts of it, one after another. */
  times(of: Language, least: number, most: number): Language {
    const from = of.nullable ? 0 : least;
    if (most === 0 || of === this.empty) return this.empty;
    if (of === this.none) return from === 0 ? this.empty : this.none;
    if (of === this.all || (from === 1 && most === 1)) return of;
    return this.#make(`${of.id}{${from},${most}}`, from === 0, { kind: 'times', of, least: from, most });
  }

  /** What may follow `symbol`. */
  after({ id, form }: Language, symbol: number): Language {
    const key = id * IDS + symbol;
    const known = this.#derivatives.get(key);
    if (known) return known;
    this.#spend(STEP_STEPS);
    const made = this.#after(form, symbol);
    this.#derivatives.set(key, made);
    return made;
  }

  #after(form: Form, symbol: number): Language {
    switch (form.kind) {
      case 'none':
      case 'empty':
        return this.none;
      case 'all':
        return this.all;
      case 'symbol':
        return has(form.spans, symbol) ? this.empty : this.none;
      case 'then': {
        const onward = this.then(this.after(form.first, symbol), form.rest);
        return form.first.nullable ? this.either([onward, this.after(form.rest, symbol)]) : onward;
      }
      case 'either':
        return this.either(form.of.map((language) => this.after(language, symbol)));
      case 'both':
        return this.both(form.of.map((language) => this.after(language, symbol)));
      case 'not':
        return this.not(this.after(form.of, symbol));
      case 'times': {
        const more = this.times(form.of, Math.max(0, form.least - 1), form.most - 1);
        return this.then(this.after(form.of, symbol), more);
      }
    }
  }

  /** Classes of the symbols up to `last`: after those of one class follows the same. Each with one of its symbols. */
  classes(language: Language, last: number): readonly SymbolClass[] {
    const first = new Map<Language, readonly Span[]>();
    this.#firstSymbols(language, first);
    const key = ids([...first.keys()].sort((a, b) => a.id - b.id));
    const known = this.#classes.get(key);
    if (known) return known;
    const sets = [...first.values()];
    const from = [...new Set([0, ...sets.flatMap((spans) => spans.flatMap(([low, high]) => [low, high + 1]))])]
      .filter((symbol) => symbol <= last)
      .sort((a, b) => a - b);
    this.#spend(STEP_STEPS * from.length + sets.reduce((sum, { length }) => sum + length, 0) * from.length);
    const made = new Map<string, { readonly symbol: number; readonly spans: Span[] }>();
    for (const [i, symbol] of from.entries()) {
      const span: Span = [symbol, (from[i + 1] ?? last + 1) - 1];
      const within = sets.map((spans) => has(spans, symbol)).join();
      const before = made.get(within);
      if (before) before.spans.push(span);
      else made.set(within, { symbol, spans: [span] });
    }
    const all = [...made.values()].map(({ symbol, spans }) => ({ symbol, spans: merged(spans) }));
    this.#classes.set(key, all);
    return all;
  }

  /** Sets of the symbols that a text of it may begin with. */
  #firstSymbols(language: Language, into: Map<Language, readonly Span[]>): void {
    this.#spend(1);
    const { form } = language;
    switch (form.kind) {
      case 'symbol':
        into.set(language, form.spans);
        return;
      case 'then':
        this.#firstSymbols(form.first, into);
        if (form.first.nullable) this.#firstSymbols(form.rest, into);
        return;
      case 'either':
      case 'both':
        for (const each of form.of) this.#firstSymbols(each, into);
        return;
      case 'not':
      case 'times':
        this.#firstSymbols(form.of, into);
        return;
      default:
    }
  }

  /** Flat, in order, each once, without the neutral one. */
  #set(kind: 'either' | 'both', languages: readonly Language[], neutral: Language): Language[] {
    const flat = languages.flatMap((language) => (language.form.kind === kind ? language.form.of : [language]));
    this.#spend(SET_STEPS * flat.length);
    return [...new Set(flat)].filter((language) => language !== neutral).sort((a, b) => a.id - b.id);
  }

  #make(key: string | number, nullable: boolean, form: Form): Language {
    const known = this.#known.get(key);
    if (known) return known;
    this.#spend(MAKE_STEPS);
    const made = { id: this.#known.size, nullable, form };
    this.#known.set(key, made);
    return made;
  }
}

function has(spans: readonly Span[], symbol: number): boolean {
  return spans.some(([low, high]) => low <= symbol && symbol <= high);
}

function ids(languages: readonly Language[]): string {
  return languages.map(({ id }) => id).join();
}

/** In order and apart. */
export function merged(spans: readonly Span[]): Span[] {
  const all: [number, number][] = [];
  for (const [low, high] of [...spans].sort((a, b) => a[0] - b[0])) {
    const last = all.at(-1);
    if (last && low <= last[1] + 1) last[1] = Math.max(last[1], high);
    else all.push([low, high]);
  }
  return all;
}
