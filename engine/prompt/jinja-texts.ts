/** Python's methods of texts, as far as JavaScript has others. */

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

/** Python's `split` and `rsplit`, at most so many `times` unless that is negative; `separator` undefined: at white space. */
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
