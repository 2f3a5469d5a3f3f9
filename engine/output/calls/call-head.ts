/** Reads what stands in front of a call's arguments, in which it may turn out not to be one. */
import type { CallFormat } from '../../protocol/reply-format.js';
import type { CallConstraint } from './call-text.js';
import { ExpectedText, type Progress } from './expected-text.js';

/** The longest text of a call before its arguments, white space included; longer text is content. */
export const MAX_HEAD = 1024;

const MAX_NAME = 64;

/**
 * What it is: not known yet, no call, a call whose arguments follow, a wrapped answer, or a part of the reply for the user.
 */
export type HeadKind = 'more' | 'none' | 'call' | 'answer' | 'user';

export class CallHead {
  /** All that was read. */
  raw: string;
  /** What constrains the reply knows of the call. */
  certain: boolean;
  name = '';
  readonly #format: CallFormat;
  readonly #constraint: CallConstraint;
  #state: 'open' | 'name' | 'between';
  #expected: ExpectedText;

  /** `raw`: what was read already, up to the name; undefined if nothing is. `certain`: `constraint` need not be asked. */
  constructor(
    format: CallFormat,
    constraint: CallConstraint,
    { raw, certain }: { readonly raw: string | undefined; readonly certain: boolean },
  ) {
    const { open, alsoOpen = [], answer } = format.syntax;
    this.#format = format;
    this.#constraint = constraint;
    this.raw = raw ?? '';
    this.certain = certain;
    this.#state = raw === undefined ? 'open' : 'name';
    this.#expected = new ExpectedText(answer === undefined ? [open, ...alsoOpen] : [open, answer]);
  }

  /** It may still be the part for the user, whose recipient has begun. */
  get mayBeUsers(): boolean {
    return this.#state === 'name' && this.#format.syntax.userRecipient?.startsWith(this.name) === true;
  }

  /** Takes text, not empty, up to where it is known what it is. */
  take(text: string): { readonly used: number; readonly is: HeadKind } {
    let used = 0;
    let is: HeadKind = 'more';
    while (used < text.length && is === 'more') {
      if (this.#state === 'name') {
        const before = this.raw.length;
        is = this.#readName(text.slice(used));
        used += this.raw.length - before;
      } else {
        is = this.#expect(text[used] ?? '');
        used += 1;
      }
      if (is === 'more' && this.raw.length > MAX_HEAD) is = 'none';
    }
    return { used, is };
  }

  #expect(unit: string): HeadKind {
    this.raw += unit;
    const progress = this.#expected.take(unit);
    if (progress === 'failed' || (this.#isDue(progress) && !this.#ask())) return 'none';
    if (progress === 'more') return 'more';
    if (this.#state === 'between') return this.#called();
    if (progress === 1 && this.#format.syntax.answer !== undefined) return 'answer';
    this.#state = 'name';
    return 'more';
  }

  /** From here on the grammar of calls is to constrain it. */
  #isDue(progress: Progress): boolean {
    const { ambiguous, mark } = this.#format.syntax;
    return this.#state === 'open' && (ambiguous === true ? typeof progress === 'number' : this.raw === mark);
  }

  #ask(): boolean {
    this.certain = this.#constraint.begin(this.raw);
    return this.certain;
  }

  #readName(text: string): HeadKind {
    const { userRecipient, between, alsoBetween = [] } = this.#format.syntax;
    const spaces = this.name === '' && userRecipient === undefined ? text.length - text.trimStart().length : 0;
    this.raw += text.slice(0, spaces);
    if (spaces > 0) return 'more';
    const end = text.search(/[^A-Za-z0-9_-]/);
    const part = end < 0 ? text : text.slice(0, end);
    this.raw += part;
    this.name += part;
    if (this.name.length > MAX_NAME) return 'none';
    if (end < 0) return 'more';
    // A mark with a name stands in other text too, where no line ends after it.
    if (!this.#isKnown || (userRecipient !== undefined && text[end] !== '\n')) return 'none';
    if (this.name === userRecipient) return 'user';
    this.#state = 'between';
    this.#expected = new ExpectedText([between, ...alsoBetween]);
    return typeof this.#expected.progress === 'number' ? this.#called() : 'more';
  }

  get #isKnown(): boolean {
    const { functions, syntax } = this.#format;
    return functions.includes(this.name) || [syntax.userRecipient, syntax.answerTool].includes(this.name);
  }

  #called(): HeadKind {
    return this.certain || this.#ask() ? 'call' : 'none';
  }
}
