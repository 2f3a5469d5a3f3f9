/**
 * ECMAScript's regular expressions as languages, as far as they are regular: without references back, looks behind and word
 * boundaries, and without looks ahead that are repeated. A pattern is never run as an expression.
 */
import { merged, type Language, type Languages, type Span } from './text-language.js';

export const LAST_CODE_POINT = 0x10ffff;
/** Symbols in front of and after every text, which `^` and `$` stand for. */
export const BEFORE = LAST_CODE_POINT + 1;
export const AFTER = LAST_CODE_POINT + 2;

const MAX_BRACKETS = 32;
/** The largest count of a repetition; a pattern with a larger one is not enforced. */
const MAX_REPEATED = 256;

const DIGIT: readonly Span[] = [[0x30, 0x39]];
const WORD: readonly Span[] = [...DIGIT, [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]];
const SPACE: readonly Span[] = [
  ...([0x20, 0xa0, 0x1680, 0x202f, 0x205f, 0x3000, 0xfeff].map((space) => [space, space]) as Span[]),
  [0x9, 0xd],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
];
const LINE_END: readonly Span[] = [
  [0xa, 0xa],
  [0xd, 0xd],
  [0x2028, 0x2029],
];
const CLASSES: Readonly<Record<string, readonly Span[]>> = { d: DIGIT, w: WORD, s: SPACE };
const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, 0: 0 };

export function complement(spans: readonly Span[]): Span[] {
  const others: Span[] = [];
  let from = 0;
  for (const [low, high] of merged(spans)) {
    if (low > from) others.push([from, low - 1]);
    from = high + 1;
  }
  if (from <= LAST_CODE_POINT) others.push([from, LAST_CODE_POINT]);
  return others;
}

/**
 * The texts between {@link BEFORE} and {@link AFTER} in which `pattern` has a match; undefined if the pattern has a
 * construct that is not supported.
 */
export function patternLanguage(pattern: string, languages: Languages): Language | undefined {
  try {
    return new Parser(pattern, languages).pattern();
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** A look ahead, or a bracket that contains one: whether it matches depends on all that follows. */
type Ahead =
  | { readonly kind: 'ahead'; readonly of: Language; readonly not: boolean }
  | { readonly kind: 'bracket'; readonly of: readonly (readonly PatternPart[])[]; readonly optional: boolean };

type PatternPart = Language | Ahead;

class Parser {
  readonly #text: string;
  readonly #l: Languages;
  #at = 0;
  #depth = 0;
  /** Nothing but `^` and looks ahead were read, so that another `^` adds nothing. */
  #begun = false;

  constructor(text: string, languages: Languages) {
    this.#text = text;
    this.#l = languages;
  }

  pattern(): Language {
    const alternatives = this.#alternatives();
    if (this.#at < this.#text.length) throw new SyntaxError('a bracket too many');
    return this.#l.then(this.#l.all, this.#either(alternatives, this.#l.all));
  }

  #alternatives(): (readonly PatternPart[])[] {
    const begun = this.#begun;
    const all = [this.#sequence()];
    while (this.#try('|')) {
      this.#begun = begun;
      all.push(this.#sequence());
    }
    return all;
  }

  #sequence(): readonly PatternPart[] {
    const parts: PatternPart[] = [];
    while (this.#at < this.#text.length && !'|)'.includes(this.#text[this.#at] ?? '')) parts.push(this.#part());
    return parts;
  }

  #either(alternatives: readonly (readonly PatternPart[])[], tail: Language): Language {
    return this.#l.either(alternatives.map((parts) => this.#together(parts, tail)));
  }

  /** One after another, and then all of what follows. */
  #together(parts: readonly PatternPart[], tail: Language): Language {
    return parts.reduceRight<Language>((rest, part) => {
      if ('form' in part) return this.#l.then(part, rest);
      if (part.kind === 'ahead') return this.#l.both([part.not ? this.#l.not(part.of) : part.of, rest]);
      return this.#l.either([this.#either(part.of, rest), ...(part.optional ? [rest] : [])]);
    }, tail);
  }

  #part(): PatternPart {
    const not = this.#try('(?=') ? false : this.#try('(?!') ? true : undefined;
    const begun = this.#begun;
    if (not !== undefined) {
      const of = this.#either(this.#bracket(), this.#l.all);
      this.#begun = begun;
      return { kind: 'ahead', of, not };
    }
    if (this.#try('^')) {
      this.#begun = true;
      return begun ? this.#l.empty : this.#l.symbol([[BEFORE, BEFORE]]);
    }
    if (this.#try('$')) return this.#l.symbol([[AFTER, AFTER]]);
    if (!this.#match(/\(\?:|\(\?<[A-Za-z_$][\w$]*>|\((?!\?)/y)) {
      this.#begun = false;
      return this.#repeated(this.#atom());
    }
    const of = this.#bracket();
    this.#begun = false;
    if (of.every((parts) => parts.every((part) => 'form' in part))) {
      return this.#repeated(this.#either(of, this.#l.empty));
    }
    const optional = this.#try('?');
    if (this.#match(/[*+?{]/y)) throw new SyntaxError('a look ahead that is repeated');
    return { kind: 'bracket', of, optional };
  }

  /** After its opening bracket. Depth: {@link MAX_BRACKETS}. */
  #bracket(): (readonly PatternPart[])[] {
    this.#depth += 1;
    if (this.#depth > MAX_BRACKETS) throw new SyntaxError('too many brackets');
    const inner = this.#alternatives();
    if (!this.#try(')')) throw new SyntaxError('an open bracket');
    this.#depth -= 1;
    return inner;
  }

  #repeated(atom: Language): Language {
    const sign = this.#match(/[*+?]|\{(\d+)(,?)(\d*)\}/y);
    if (!sign) return atom;
    this.#try('?');
    const [text = '', from, comma, to] = sign;
    if (from === undefined) return this.#l.times(atom, text === '+' ? 1 : 0, text === '?' ? 1 : Infinity);
    const least = Number(from);
    const most = comma === '' ? least : to === '' ? Infinity : Number(to);
    if (least > most || least > MAX_REPEATED || (most !== Infinity && most > MAX_REPEATED)) {
      throw new SyntaxError('a count that is not enforced');
    }
    return this.#l.times(atom, least, most);
  }

  #atom(): Language {
    if (this.#try('.')) return this.#l.symbol(complement(LINE_END));
    if (this.#try('[')) return this.#l.symbol(this.#class());
    if (this.#try('\\')) return this.#l.symbol(this.#escape(false));
    const character = this.#match(/[^*+?{}()[\]\\|^$]|[\]}]|\{(?!\d)/uy)?.[0];
    if (character === undefined) throw new SyntaxError('no atom');
    return this.#l.symbol([single(character)]);
  }

  /** After its opening bracket. */
  #class(): readonly Span[] {
    const not = this.#try('^');
    const spans: Span[] = [];
    while (!this.#try(']')) {
      const low = this.#member();
      if (low.length === 1 && low[0]?.[0] === low[0]?.[1] && this.#match(/-(?!\])/y)) {
        const high = this.#member();
        const [from, to] = [low[0]?.[0] ?? 0, high[0]?.[1] ?? 0];
        if (high.length !== 1 || high[0]?.[0] !== to || from > to) throw new SyntaxError('no range');
        spans.push([from, to]);
      } else spans.push(...low);
    }
    return not ? complement(spans) : spans;
  }

  #member(): readonly Span[] {
    if (this.#try('\\')) return this.#escape(true);
    const character = this.#match(/[^\]\\]/uy)?.[0];
    if (character === undefined) throw new SyntaxError('an open class');
    return [single(character)];
  }

  /** After the backslash. */
  #escape(inClass: boolean): readonly Span[] {
    const spelled = this.#match(/x([\da-fA-F]{2})|u([\da-fA-F]{4})|u\{([\da-fA-F]{1,6})\}/y);
    if (spelled) {
      const point = Number.parseInt(spelled[1] ?? spelled[2] ?? spelled[3] ?? '', 16);
      // A half of a pair stands for no character, and a pair of them is not put together here.
      if (point > LAST_CODE_POINT || (point >= 0xd800 && point <= 0xdfff)) throw new SyntaxError('no code point');
      return [[point, point]];
    }
    const [letter = ''] = this.#match(/[^]/uy) ?? [];
    const known = CLASSES[letter.toLowerCase()];
    if (known && /[dwsDWS]/.test(letter)) return letter === letter.toLowerCase() ? known : complement(known);
    if (inClass && letter === 'b') return [[8, 8]];
    if (letter === '0' && /\d/.test(this.#text[this.#at] ?? '')) throw new SyntaxError('an octal escape');
    const control = CONTROLS[letter];
    if (control !== undefined) return [[control, control]];
    if (letter === '' || /[\w]/.test(letter)) throw new SyntaxError('an escape that is not known here');
    return [single(letter)];
  }

  #try(text: string): boolean {
    const found = this.#text.startsWith(text, this.#at);
    if (found) this.#at += text.length;
    return found;
  }

  #match(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text) ?? undefined;
    this.#at += found?.[0].length ?? 0;
    return found;
  }
}

function single(character: string): Span {
  const point = character.codePointAt(0) ?? 0;
  return [point, point];
}
