/**
 * Separates the calls in a reply from its content while it is generated.
 *
 *     content --mark--> head --open--> name --> between --> arguments --> tail --close--> content
 *        ^                |              ^                                  |
 *        +--- no call ----+              +--------------- next -------------+
 *
 * Until the arguments begin, a call may turn out not to be one; its text is then content. If a grammar constrains the
 * reply from the mark on (`hold`), that cannot happen.
 */
import type { CallFormat } from '../../protocol/reply-format.js';
import { JsonArguments, type ArgumentsReader } from './arguments-reader.js';
import { ALWAYS_CONSTRAINED, ParsedText, type CallHold, type CallText } from './call-text.js';
import { ExpectedText } from './expected-text.js';
import { StringText } from './json-text.js';
import { MAX_SPACE, splitBeforeMark } from './marks.js';
import { readerOf } from './readers.js';

/** Calls that one reply can have: an index in an answer ends at 127. */
export const MAX_CALLS = 128;

const MAX_NAME = 64;

/** The longest text of a call before its arguments, white space included; longer text is content. */
const MAX_HEAD = 1024;

type State = 'start' | 'content' | 'head' | 'name' | 'between' | 'arguments' | 'tail' | 'answer' | 'plain' | 'over';

export class CallParser {
  readonly #format: CallFormat;
  readonly #hold: CallHold;
  #state: State;
  /** Content not yet passed on: white space, and a possible beginning of a mark. */
  #held = '';
  /** Some content was passed on. */
  #shown = false;
  /** White space before the current call, and the call's own text so far. */
  #spaces = '';
  #raw = '';
  #certain = false;
  #name = '';
  #calls = 0;
  #expected = new ExpectedText([]);
  #arguments: ArgumentsReader = new JsonArguments();
  #string = new StringText();

  /** `hold` is called as soon as a call is recognized. */
  constructor(format: CallFormat, hold: CallHold = ALWAYS_CONSTRAINED) {
    this.#format = format;
    this.#hold = hold;
    this.#state = format.syntax.mark === '' ? 'start' : 'content';
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
    const content = (mark ? '' : this.#held) + (this.#certain ? '' : this.#spaces + this.#raw);
    this.#held = this.#spaces = this.#raw = '';
    return { content: this.#calls > 0 && content.trim() === '' ? '' : content, calls: [] };
  }

  /** Processes text in the current state; returns the rest. */
  #take(text: string, out: ParsedText): string {
    switch (this.#state) {
      case 'start':
        return this.#start(text, out);
      case 'content':
        return this.#content(text, out);
      case 'head':
      case 'between':
      case 'tail':
        return this.#expect(text, out);
      case 'name':
        return this.#readName(text, out);
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
    const all = this.#held + text;
    const begin = all.search(/\S/);
    this.#held = begin < 0 ? all : '';
    if (begin < 0 && all.length <= MAX_SPACE) return '';
    if (begin >= 0 && begin <= MAX_SPACE && all[begin] === '{') return this.#begin(all, begin, out);
    this.#held = '';
    this.#state = 'plain';
    return this.#emit(all, out);
  }

  #content(text: string, out: ParsedText): string {
    const { content, rest, spaces } = splitBeforeMark(this.#held + text, this.#format.syntax.mark);
    this.#held = spaces === undefined ? rest : '';
    this.#emit(content, out);
    return spaces === undefined ? '' : this.#begin(rest, spaces, out);
  }

  #begin(text: string, at: number, out: ParsedText): string {
    const { open, alsoOpen = [], answer } = this.#format.syntax;
    this.#spaces = text.slice(0, at);
    this.#raw = '';
    // If a grammar constrains the whole reply, only a call or an answer can begin like this.
    this.#certain = this.#format.gbnf === undefined;
    this.#await('head', answer === undefined ? [open, ...alsoOpen] : [open, answer], out);
    return text.slice(at);
  }

  /** Changes to a state that expects one of these texts; an empty text is matched at once. */
  #await(state: 'head' | 'between' | 'tail', texts: readonly string[], out: ParsedText): void {
    this.#state = state;
    this.#expected = new ExpectedText(texts);
    const { progress } = this.#expected;
    if (typeof progress === 'number') this.#matched(progress, out);
  }

  #expect(text: string, out: ParsedText): string {
    for (let i = 0; i < text.length; i++) {
      const unit = text[i] ?? '';
      this.#raw += unit;
      const progress = this.#expected.take(unit);
      const refused = this.#state === 'head' && this.#raw === this.#format.syntax.mark && !this.#ask();
      if (progress === 'failed' || refused || this.#raw.length > MAX_HEAD) {
        this.#giveUp(out);
        return text.slice(i + 1);
      }
      if (progress === 'more') continue;
      this.#matched(progress, out);
      return text.slice(i + 1);
    }
    return '';
  }

  #ask(): boolean {
    this.#certain = this.#hold.begin(this.#raw);
    return this.#certain;
  }

  #matched(which: number, out: ParsedText): void {
    if (this.#state === 'between') this.#beginArguments(out);
    else if (this.#state === 'tail' && which === 0) this.#close();
    else if (this.#state === 'head' && which === 1 && this.#format.syntax.answer !== undefined) this.#state = 'answer';
    else {
      this.#name = '';
      this.#state = 'name';
    }
  }

  #readName(text: string, out: ParsedText): string {
    const spaces = this.#name === '' ? text.length - text.trimStart().length : 0;
    this.#raw += text.slice(0, spaces);
    if (this.#raw.length > MAX_HEAD) this.#giveUp(out);
    if (spaces > 0) return text.slice(spaces);
    const end = text.search(/[^A-Za-z0-9_-]/);
    const part = end < 0 ? text : text.slice(0, end);
    this.#raw += part;
    this.#name += part;
    if (this.#name.length > MAX_NAME || (end >= 0 && !this.#format.functions.includes(this.#name))) {
      this.#giveUp(out);
      return text.slice(part.length);
    }
    const { between, alsoBetween = [] } = this.#format.syntax;
    if (end >= 0) this.#await('between', [between, ...alsoBetween], out);
    return text.slice(part.length);
  }

  #beginArguments(out: ParsedText): void {
    if (!this.#certain && !this.#ask()) {
      this.#giveUp(out);
      return;
    }
    out.calls.push({ index: this.#calls, name: this.#name, arguments: '' });
    this.#arguments = readerOf(this.#format, this.#name);
    this.#state = 'arguments';
  }

  #readArguments(text: string, out: ParsedText): string {
    const { json, used } = this.#arguments.take(text);
    if (json !== '') out.calls.push({ index: this.#calls, arguments: json });
    if (this.#arguments.complete) {
      this.#calls += 1;
      const { close, next } = this.#format.syntax;
      const { behind, rest } = this.#arguments;
      this.#raw = rest;
      if (behind === undefined) this.#await('tail', next === undefined ? [close] : [close, next], out);
      else if (behind === 'failed') this.#giveUp(out);
      else {
        this.#state = 'tail';
        this.#matched(behind, out);
      }
    }
    return text.slice(used);
  }

  #close(): void {
    this.#hold.end();
    this.#spaces = this.#raw = '';
    this.#certain = false;
    this.#state = this.#format.syntax.mark === '' ? 'over' : 'content';
  }

  #readAnswer(text: string, out: ParsedText): string {
    // From here on the reply's text is not returned unchanged any more.
    this.#spaces = this.#raw = '';
    const { text: shown, used } = this.#string.take(text);
    this.#emit(shown, out);
    if (this.#string.complete) this.#state = 'over';
    return text.slice(used);
  }

  /** It is not a call. */
  #giveUp(out: ParsedText): void {
    this.#emit(this.#spaces + this.#raw, out);
    this.#spaces = this.#raw = '';
    this.#certain = false;
    this.#state = this.#format.syntax.mark === '' ? 'plain' : 'content';
  }

  #emit(text: string, out: ParsedText): '' {
    this.#shown ||= text !== '';
    out.content += text;
    return '';
  }
}
