import { isWithin, type ScalarForm, type ValueType, type ValueTypes } from '../../protocol/reply-format.js';
import { StopMatcher } from '../stop-matcher.js';
import type { ArgumentsPart } from './object-reader.js';
import { isScalar, ObjectEnd, PYTHON_LITERALS } from './json-text.js';

/** Text that may be a number, true, false or null is buffered; what is longer than this is none. */
const MAX_SCALAR = 40;

const SCALAR_BEGUN = /^\s*(?:-?[\d.eE+-]*|[tT]r?u?e?|[fF]a?l?s?e?|[nN]u?l?l?|No?n?e?)\s*$/;

const CDATA = { open: '<![CDATA[', close: ']]>' } as const;

interface ValueMarks {
  readonly before: string;
  readonly close: string;
  readonly cdata?: boolean;
}

/** The value of one element, up to and with its closing mark, as JSON text. */
export class ElementValue {
  readonly #types: readonly ValueType[];
  readonly #scalars: readonly ScalarForm[];
  readonly #cdata: boolean;
  readonly #dropLead: boolean;
  readonly #dropTail: boolean;
  readonly #close: StopMatcher;
  /** Unknown until it has begun. */
  #kind: 'unknown' | 'scalar' | 'text' | 'cdata' | 'nested' = 'unknown';
  #buffered = '';
  #lead = true;
  readonly #nested = new ObjectEnd();
  complete = false;

  /** What it may be; `before` stood before it, `close` ends it. */
  constructor(
    { types, scalars = [{ types }] }: Pick<ValueTypes, 'types' | 'scalars'>,
    { before, close, cdata = false }: ValueMarks,
  ) {
    this.#types = types;
    this.#scalars = scalars;
    this.#cdata = cdata;
    this.#dropLead = before.endsWith('\n');
    this.#dropTail = close.startsWith('\n');
    // White space around marks counts for nothing, but for the line end that is dropped.
    this.#close = new StopMatcher([close.trim()]);
  }

  /** Takes text up to the end of the closing mark. */
  take(text: string): ArgumentsPart {
    if (this.#kind === 'nested') return this.#readNested(text);
    if (this.#kind === 'unknown') {
      const lead = text.length - text.replace(/^[ \t\n\r]+/, '').length;
      const first = text[lead] ?? '';
      const nested = (first === '{' && this.#may('object')) || (first === '[' && this.#may('array'));
      if (nested && this.#buffered.trim() === '') {
        this.#kind = 'nested';
        return { json: '', used: lead };
      }
      if (first === '') {
        this.#buffered += text;
        return { json: '', used: text.length };
      }
      const begun = (this.#buffered + text).trimStart();
      if (this.#cdata && begun.length < CDATA.open.length && CDATA.open.startsWith(begun)) {
        this.#buffered += text;
        return { json: '', used: text.length };
      }
      const quoted = this.#cdata && begun.startsWith(CDATA.open);
      this.#kind = quoted ? 'cdata' : this.#types.length === 1 && this.#may('string') ? 'text' : 'scalar';
      const buffered = this.#buffered;
      this.#buffered = '';
      if (quoted) {
        const { json, used } = this.take(begun.slice(CDATA.open.length));
        return { json: `"${json}`, used: used + text.length - begun.length + CDATA.open.length };
      }
      const { json, used } = this.take(buffered + text);
      return { json, used: used - buffered.length };
    }
    const shown = this.#close.push(text);
    if (this.#close.matched === undefined) return { json: this.#show(shown), used: text.length };
    const used = text.length - this.#close.rest.length;
    this.complete = true;
    return { json: this.#show(shown) + this.#finish(), used };
  }

  #may(type: ValueType): boolean {
    return this.#types.includes(type);
  }

  #readNested(text: string): ArgumentsPart {
    if (!this.#nested.complete) {
      const used = this.#nested.take(text);
      return { json: text.slice(0, used), used };
    }
    this.#close.push(text);
    if (this.#close.matched === undefined) return { json: '', used: text.length };
    this.complete = true;
    return { json: '', used: text.length - this.#close.rest.length };
  }

  /** What of the value's text is certain. */
  #show(text: string): string {
    if (this.#kind === 'cdata') return this.#quoted(text);
    if (this.#kind === 'scalar') {
      this.#buffered += text;
      if (!this.#may('string') || (this.#buffered.length <= MAX_SCALAR && SCALAR_BEGUN.test(this.#buffered))) return '';
      this.#kind = 'text';
      const all = this.#buffered;
      this.#buffered = '';
      return this.#text(all);
    }
    return this.#text(text);
  }

  /** Text within CDATA, but for what may be its end. */
  #quoted(text: string): string {
    this.#buffered += text;
    // It is a part of the value only if more follows.
    if (text.trim() === '') return '';
    const all = this.#buffered;
    const end = cdataEnd(all);
    this.#buffered = all.slice(end);
    return JSON.stringify(all.slice(0, end)).slice(1, -1);
  }

  #text(text: string): string {
    let rest = text;
    let out = '';
    if (this.#lead && rest !== '') {
      this.#lead = false;
      out = '"';
      if (this.#dropLead && rest.startsWith('\n')) rest = rest.slice(1);
    }
    if (rest === '') return out;
    rest = this.#buffered + rest;
    this.#buffered = '';
    if (this.#dropTail && rest.endsWith('\n')) {
      this.#buffered = '\n';
      rest = rest.slice(0, -1);
    }
    return out + JSON.stringify(rest).slice(1, -1);
  }

  #finish(): string {
    if (this.#kind === 'cdata') {
      const text = this.#buffered.trimEnd();
      return JSON.stringify(text.endsWith(CDATA.close) ? text.slice(0, -CDATA.close.length) : text).slice(1);
    }
    if (this.#kind !== 'scalar') return this.#lead ? '""' : '"';
    const text = this.#buffered.trim();
    const json = PYTHON_LITERALS[text] ?? text;
    if (isScalar(json) && (!this.#may('string') || this.#scalars.some((form) => isOf(form, json)))) return json;
    const raw = this.#buffered;
    this.#buffered = '';
    this.#kind = 'text';
    return this.#text(raw) + this.#finish();
  }
}

/** The index from which on a text may be the end mark of CDATA with white space after it, or white space alone. */
function cdataEnd(text: string): number {
  const before = text.trimEnd();
  return /(?:\]\]>|\]\]?)$/.exec(before)?.index ?? before.length;
}

/** Whether a scalar, given as JSON, is of this form. What has a point or an exponent is no integer: it may be a version. */
function isOf({ types, values, ...bounds }: ScalarForm, json: string): boolean {
  const value = JSON.parse(json) as number | boolean | null;
  if (values !== undefined) return values.includes(JSON.stringify(value));
  if (typeof value !== 'number') return types.includes(value === null ? 'null' : 'boolean');
  const isType = types.includes('number') || (types.includes('integer') && /^-?\d+$/.test(json));
  return isType && isWithin(value, bounds);
}
