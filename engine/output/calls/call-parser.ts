/**
 * Separates the calls in a reply from its content while it is generated.
 *
 *     content --mark--> head --> arguments --> tail --close--> content
 *        ^                |  ^                   |
 *        +--- no call ----+  +------ next -------+
 *
 * Where a reply's parts have recipients (CallSyntax.userRecipient), it begins within the head, and content follows one of them.
 * Until the arguments begin, a call may turn out not to be one; its text is then content. If a grammar constrains the
 * reply from the mark on (`constraint`), that cannot happen.
 */
import type { CallFormat } from '../../protocol/reply-format.js';
import { JsonArguments, type ArgumentsReader, LooseJson } from './object-reader.js';
import {
  ALWAYS_CONSTRAINED,
  ParsedText,
  type CallConstraint,
  type CallText,
  marksOf,
  MAX_SPACE,
  splitBeforeMark,
} from './call-text.js';
import { ElementReader } from './element-reader.js';
import { ExpectedText, type Progress } from './expected-text.js';
import { StringText } from './json-text.js';

/** Calls that one reply can have: an index in an answer ends at 127. */
export const MAX_CALLS = 128;

type State = 'start' | 'content' | 'lead' | 'head' | 'arguments' | 'tail' | 'answer' | 'plain' | 'over';

export class CallParser {
  readonly #format: CallFormat;
  readonly #constraint: CallConstraint;
  readonly #marks: readonly string[];
  #state: State;
  /** Content not yet passed on: white space, and a possible beginning of a mark. */
  #buffered = '';
  /** Some content was passed on. */
  #shown = false;
  /** White space before the current call, and the call's own text after its arguments. */
  #spaces = '';
  #raw = '';
  #head: CallHead;
  #calls = 0;
  #expected = new ExpectedText([]);
  #arguments: ArgumentsReader = new JsonArguments();
  #string = new StringText();

  /** `constraint` begins as soon as a call is recognized. */
  constructor(format: CallFormat, constraint: CallConstraint = ALWAYS_CONSTRAINED) {
    this.#format = format;
    this.#constraint = constraint;
    this.#marks = marksOf(format.syntax);
    const { mark, userRecipient } = format.syntax;
    const begun = userRecipient !== undefined;
    this.#state = begun ? 'head' : mark === '' ? 'start' : 'content';
    this.#head = this.#newHead(begun ? '' : undefined);
  }

  /** Calls whose arguments are complete. */
  get calls(): number {
    return this.#calls;
  }

  /** The text so far ends within a call's arguments. */
  get reading(): boolean {
    return this.#state === 'arguments';
  }

  /** Adds whole characters; returns the newly parsed parts. */
  push(text: string): CallText {
    const out = new ParsedText();
    for (let rest = text; rest !== '';) rest = this.#take(rest, out);
    return out;
  }

  /**
   * The reply has ended: returns buffered content. An incomplete call yields nothing more; if a grammar constrains the
   * whole reply and it has no content so far, a possible beginning of a mark is dropped too.
   */
  end(): CallText {
    const mark = this.#format.gbnf === undefined && !this.#shown;
    const { certain, mayBeUsers, raw } = this.#head;
    const call = this.#state === 'head' && !certain && !mayBeUsers ? this.#spaces + raw : '';
    const content = (mark ? '' : this.#buffered) + call;
    this.#buffered = this.#spaces = this.#raw = '';
    return { content: this.#calls > 0 && content.trim() === '' ? '' : content, calls: [] };
  }

  /** Processes text in the current state; returns the rest. */
  #take(text: string, out: ParsedText): string {
    switch (this.#state) {
      case 'start':
        return this.#start(text, out);
      case 'content':
        return this.#content(text, out);
      case 'lead':
        return this.#lead(text);
      case 'head':
        return this.#readHead(text, out);
      case 'tail':
        return this.#readTail(text, out);
      case 'arguments':
        return this.#readArguments(text, out);
      case 'answer':
        return this.#readAnswer(text, out);
      case 'plain':
        return this.#emit(text, out);
      case 'over':
        return '';
    }
  }

  /** Without a mark, a reply that begins like a call is one, and otherwise content. */
  #start(text: string, out: ParsedText): string {
    const all = this.#buffered + text;
    const begin = all.search(/\S/);
    this.#buffered = begin < 0 ? all : '';
    if (begin < 0 && all.length <= MAX_SPACE) return '';
    if (begin >= 0 && begin <= MAX_SPACE && all[begin] === '{') return this.#begin(all, begin);
    this.#buffered = '';
    this.#state = 'plain';
    return this.#emit(all, out);
  }

  #content(text: string, out: ParsedText): string {
    const { content, rest, spaces } = splitBeforeMark(this.#buffered + text, this.#marks);
    this.#buffered = spaces === undefined ? rest : '';
    this.#emit(content, out);
    return spaces === undefined ? '' : this.#begin(rest, spaces);
  }

  #begin(text: string, at: number): string {
    this.#spaces = text.slice(0, at);
    this.#head = this.#newHead(undefined);
    this.#state = 'head';
    return text.slice(at);
  }

  /** `raw`: as {@link CallHead} has it. If a grammar constrains the whole reply, only a call or an answer can begin so. */
  #newHead(raw: string | undefined, certain = this.#format.gbnf === undefined): CallHead {
    return new CallHead(this.#format, this.#constraint, { raw, certain });
  }

  #readHead(text: string, out: ParsedText): string {
    const { used, is } = this.#head.take(text);
    if (is === 'none') this.#giveUp(this.#head.raw, out);
    else if (is === 'answer') this.#state = 'answer';
    else if (is === 'user') this.#answers();
    else if (is === 'call') this.#beginArguments(out);
    return text.slice(used);
  }

  #readTail(text: string, out: ParsedText): string {
    for (let i = 0; i < text.length; i++) {
      const unit = text[i] ?? '';
      this.#raw += unit;
      const progress = this.#expected.take(unit);
      if (progress === 'more' && this.#raw.length <= MAX_HEAD) continue;
      if (typeof progress === 'number') this.#ended(progress);
      else this.#giveUp(this.#raw, out);
      return text.slice(i + 1);
    }
    return '';
  }

  /** A call is over; `which`: as {@link ArgumentsReader.after}. */
  #ended(which: number): void {
    if (which === 0) {
      this.#close();
      return;
    }
    this.#head = this.#newHead(this.#raw, true);
    this.#state = 'head';
  }

  /** What follows is content. */
  #answers(): void {
    this.#spaces = '';
    this.#state = 'lead';
  }

  /** Drops the line end after a recipient, or the white space after the call of an answer's tool. */
  #lead(text: string): string {
    const { userRecipient } = this.#format.syntax;
    const rest = userRecipient === undefined ? text.trimStart() : text.replace(/^\n/, '');
    if (userRecipient !== undefined || rest !== '') this.#state = 'content';
    return rest;
  }

  #beginArguments(out: ParsedText): void {
    const { name } = this.#head;
    if (!this.#isAnswer) out.calls.push({ index: this.#calls, name, arguments: '' });
    this.#arguments = readerOf(this.#format, name);
    this.#state = 'arguments';
  }

  /** The function is none that the caller has. */
  get #isAnswer(): boolean {
    return this.#head.name === this.#format.syntax.answerTool;
  }

  #readArguments(text: string, out: ParsedText): string {
    const { json, used } = this.#arguments.take(text);
    if (json !== '' && !this.#isAnswer) out.calls.push({ index: this.#calls, arguments: json });
    if (this.#arguments.complete) {
      if (!this.#isAnswer) this.#calls += 1;
      const { close, next } = this.#format.syntax;
      const { after, rest } = this.#arguments;
      this.#raw = rest;
      if (after === 'failed') this.#giveUp(this.#raw, out);
      else if (after !== undefined) this.#ended(after);
      else {
        this.#state = 'tail';
        this.#expected = new ExpectedText(next === undefined ? [close] : [close, next]);
        const { progress } = this.#expected;
        if (typeof progress === 'number') this.#ended(progress);
      }
    }
    return text.slice(used);
  }

  #close(): void {
    // After an answer's tool the grammar continues: with at least one character of the answer.
    if (this.#isAnswer) {
      this.#answers();
      return;
    }
    this.#constraint.end();
    this.#spaces = this.#raw = '';
    this.#state = this.#format.syntax.mark === '' ? 'over' : 'content';
  }

  #readAnswer(text: string, out: ParsedText): string {
    // From here on the reply's text is not returned unchanged any more.
    this.#spaces = '';
    const { text: shown, used } = this.#string.take(text);
    this.#emit(shown, out);
    if (this.#string.complete) this.#state = 'over';
    return text.slice(used);
  }

  /** It is no call, or does not continue as one: `raw` is content. */
  #giveUp(raw: string, out: ParsedText): void {
    this.#emit(this.#spaces + raw, out);
    this.#spaces = this.#raw = '';
    this.#state = this.#format.syntax.mark === '' ? 'plain' : 'content';
  }

  #emit(text: string, out: ParsedText): '' {
    this.#shown ||= text !== '';
    out.content += text;
    return '';
  }
}

/** A reader of the arguments of one call of `name`, in the format's notation. */
function readerOf(format: CallFormat, name: string): ArgumentsReader {
  const { syntax, functions, values = [] } = format;
  const { arguments: notation, close, next } = syntax;
  const ends = next === undefined ? [close] : [close, next];
  const own = values.filter((_, i) => functions[i] === name);
  switch (notation?.kind) {
    case undefined:
      return new JsonArguments();
    case 'bare':
      return new LooseJson({ quote: notation.quote });
    case 'keywords':
      return new LooseJson({ end: ')' });
    case 'tagged':
    case 'nested':
      return new ElementReader(notation, own, ends);
  }
}

/** Reads what stands in front of a call's arguments, in which it may turn out not to be one. */

/** The longest text of a call before its arguments, white space included; longer text is content. */
const MAX_HEAD = 1024;

const MAX_NAME = 64;

/**
 * What it is: not known yet, no call, a call whose arguments follow, a wrapped answer, or a part of the reply for the user.
 */
type HeadKind = 'more' | 'none' | 'call' | 'answer' | 'user';

class CallHead {
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
