/** Python's methods of texts, as far as JavaScript has others, and values written as texts: by `format` and `%`, and as JSON. */
import type { Value } from './jinja-library.js';
import { type Arguments, isList, isSet, plainText, pythonText } from './jinja-values.js';
import { pythonFloat } from './written-number.js';

/** What Python takes for white space, at the ends of a text. */
const WHITE_SPACE =
  '\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000';

const LINE_ENDS = /\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]/;

/** A text without these characters at its ends. */
export function stripped(text: string, ends: 'both' | 'start' | 'end', characters = WHITE_SPACE): string {
  let from = 0;
  let to = text.length;
  if (ends !== 'end') while (from < to && characters.includes(text[from] ?? '')) from += 1;
  if (ends !== 'start') while (to > from && characters.includes(text[to - 1] ?? '')) to -= 1;
  return text.slice(from, to);
}

/** Its lines; there is an empty one after a line end that ends it. */
export function linesOf(text: string): string[] {
  return text.split(LINE_ENDS);
}

export function capitalized(text: string): string {
  const [first = ''] = text;
  return first.toUpperCase() + text.slice(first.length).toLowerCase();
}

/** How many characters there are in front of a place that was counted in JavaScript's units; -1 is kept. */
export function charactersBefore(text: string, at: number): number {
  return at < 0 ? at : lengthOf(text.slice(0, at));
}

export function lengthOf(text: string): number {
  return SURROGATES.test(text) ? Array.from(text).length : text.length;
}

/** The character at a place, from the end if that is negative. */
export function characterAt(text: string, at: number): string | undefined {
  return SURROGATES.test(text) ? Array.from(text).at(at) : text.at(at);
}

const SURROGATES = /[\ud800-\udfff]/;

export function withReplaced(text: string, old: string, by: string, times: number): string {
  if (old === '' || times < 0) return text.replaceAll(old, () => by);
  const parts = text.split(old);
  const rest = parts.splice(times + 1);
  return [parts.join(by), ...rest].join(old);
}

/** Python's `split` and `rsplit`, at most so many `times` unless that is negative; `separator` undefined for white space. */
export function splitText(text: string, separator: string | undefined, times: number, fromEnd: boolean): string[] {
  if (separator === '') throw new Error('an empty separator');
  return separator === undefined
    ? wordsOf(text, times, fromEnd)
    : partsOf(text.split(separator), separator, times, fromEnd);
}

function partsOf(parts: readonly string[], separator: string, times: number, fromEnd: boolean): string[] {
  if (times < 0 || parts.length <= times) return [...parts];
  const at = fromEnd ? parts.length - times : times;
  return fromEnd
    ? [parts.slice(0, at).join(separator), ...parts.slice(at)]
    : [...parts.slice(0, at), parts.slice(at).join(separator)];
}

function wordsOf(text: string, times: number, fromEnd: boolean): string[] {
  const words = Array.from(text.matchAll(WORD), ({ 0: word, index }) => ({ word, index }));
  const all = words.map(({ word }) => word);
  const first = fromEnd ? words.length - times - 1 : times;
  const whole = times < 0 ? undefined : words[first];
  if (whole === undefined) return all;
  return fromEnd
    ? [text.slice(0, whole.index + whole.word.length), ...all.slice(first + 1)]
    : [...all.slice(0, first), text.slice(whole.index)];
}

const WORD = /(?:[^\s\x1c-\x1f\x85]|\ufeff)+/g;

/* Values written by Python's `format` and its operator `%`. */

/** `'{} {0} {name} {:02d}'.format(…)`. Throws for what is not written here. */
export function braceFormat(text: string, { positional, named }: Arguments): string {
  let next = 0;
  return text.replace(/\{\{|\}\}|\{(\w*)(?::([^{}]*))?\}|[{}]/g, (all, name: string | undefined, form: string = '') => {
    if (all === '{{' || all === '}}') return all.slice(1);
    if (name === undefined) throw new Error('a format is not known');
    const value = /^\d*$/.test(name) ? positional[name === '' ? next++ : Number(name)] : named.get(name);
    return written(value, form);
  });
}

/** `'%s %02d %(name)s' % …`. Throws for what is not written here. */
export function percentFormat(text: string, { positional, named }: Arguments): string {
  let next = 0;
  return text.replace(/%(?:%|(?:\((\w+)\))?([-0]?\d*(?:\.\d+)?[sdifr])|)/g, (all, name?: string, form?: string) => {
    if (all === '%%') return '%';
    if (form === undefined) throw new Error('a format is not known');
    const value = name === undefined ? positional[next++] : named.get(name);
    if (form.endsWith('r')) return value === undefined ? '' : pythonText(value);
    return written(
      value,
      form
        .replace('i', 'd')
        .replace(/^-/, '<')
        .replace(/^(?=[1-9].*s)/, '>'),
    );
  });
}

/** Fill and alignment, zeros, width, digits, type. */
const FORM = /^(?:(.?)([<>^]))?(0?)(\d*)(?:\.(\d+))?([sdf]?)$/u;

function written(value: Value | undefined, form: string): string {
  const [, fill = '', align, zeros, width, digits, type] = FORM.exec(form) ?? [];
  if (value === undefined || type === undefined) throw new Error('a format is not known');
  const isNumber = value.type === 'IntegerValue' || value.type === 'FloatValue';
  if ((type === 'd' || type === 'f') && !isNumber) throw new Error('a number is formatted that is none');
  const text =
    type === 'f'
      ? fixed(Number(value.value), Number(digits ?? 6))
      : type === 'd'
        ? digitsOf(value)
        : plainText(value).slice(0, digits === undefined ? undefined : Number(digits));
  const pad = Math.max(0, Number(width) - Array.from(text).length);
  if (zeros === '0' && isNumber && align === undefined) return text.replace(/^-?/, (sign) => sign + '0'.repeat(pad));
  const side = align ?? (isNumber ? '>' : '<');
  const before = side === '>' ? pad : side === '^' ? Math.floor(pad / 2) : 0;
  const filling = fill === '' ? ' ' : fill;
  return filling.repeat(before) + text + filling.repeat(pad - before);
}

/** A number without what is behind its point. */
function digitsOf(value: Value): string {
  return value.type === 'IntegerValue' ? value.toString() : String(Math.trunc(Number(value.value)));
}

/** With so many digits after the point. Half of the last one is rounded to an even digit. */
export function fixed(value: number, digits: number): string {
  const scaled = value * 10 ** digits;
  // Only then the value's binary digits end there: otherwise `scaled` may be a half because it was rounded.
  const isHalf = Number.isInteger(value * 2 ** (digits + 1)) && Math.abs(scaled % 1) === 0.5;
  return isHalf ? ((2 * Math.round(scaled / 2)) / 10 ** digits).toFixed(digits) : value.toFixed(digits);
}

/* The filter `tojson` as Python's json has it, where the library writes numbers as JavaScript does. */

/** The filter's arguments. */
interface JsonArguments {
  readonly ascii: Value | undefined;
  readonly indent: Value | undefined;
  readonly separators: Value | undefined;
  readonly sorted: Value | undefined;
}

interface Layout {
  readonly between: string;
  readonly afterName: string;
  /** Absent: all on one line. */
  readonly indent?: string;
  readonly ascii: boolean;
  readonly sorted: boolean;
}

/** A value as JSON. What is not defined is null. Throws for functions. */
export function pythonJson(value: Value, { ascii, indent, separators, sorted }: JsonArguments): string {
  const width = Number(indent?.value ?? 0);
  const [between, afterName] = separators && isList(separators) ? separators.value.map(String) : [];
  return jsonOf(value, '\n', {
    between: between ?? (width > 0 ? ',' : ', '),
    afterName: afterName ?? ': ',
    ...(width > 0 && { indent: ' '.repeat(width) }),
    ascii: isSet(ascii),
    sorted: isSet(sorted),
  });
}

/** `line`: a line's beginning. */
function jsonOf(value: Value, line: string, layout: Layout): string {
  switch (value.type) {
    case 'NullValue':
    case 'UndefinedValue':
      return 'null';
    case 'BooleanValue':
      return String(value.value);
    case 'IntegerValue':
      return value.toString();
    case 'FloatValue':
      return FLOATS[pythonFloat(value.value as number)] ?? pythonFloat(value.value as number);
    case 'StringValue':
      return jsonString(value.value as string, layout);
  }
  const next = line + (layout.indent ?? '');
  if (isList(value)) {
    const items = value.value.map((item) => jsonOf(item, next, layout));
    return bracketed('[', items, ']', line, layout);
  }
  if (value.type !== 'ObjectValue' && value.type !== 'NamespaceValue') throw new Error(`no JSON of ${value.type}`);
  const entries = [...(value.value as ReadonlyMap<string, Value>)];
  if (layout.sorted) entries.sort(([a], [b]) => (a < b ? -1 : 1));
  const members = entries.map(
    ([name, member]) => jsonString(name, layout) + layout.afterName + jsonOf(member, next, layout),
  );
  return bracketed('{', members, '}', line, layout);
}

function bracketed(
  open: string,
  items: readonly string[],
  close: string,
  line: string,
  { between, indent }: Layout,
): string {
  if (indent === undefined || items.length === 0) return open + items.join(between) + close;
  const next = line + indent;
  return open + next + items.join(between + next) + line + close;
}

function jsonString(text: string, { ascii }: Layout): string {
  const json = JSON.stringify(text);
  if (!ascii) return json;
  return json.replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Floats that Python's json writes otherwise than Python. */
const FLOATS: Readonly<Record<string, string>> = { inf: 'Infinity', '-inf': '-Infinity', nan: 'NaN' };
