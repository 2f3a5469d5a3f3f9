/** Values written by Python's `format` and its operator `%`. */
import type { Arguments } from './jinja-arguments.js';
import type { Value } from './jinja-library.js';
import { plainText, pythonText } from './jinja-values.js';

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
