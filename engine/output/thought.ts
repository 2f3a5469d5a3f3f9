import type { ThoughtFormat } from '../protocol/reply-format.js';
import { StopMatcher } from './stop-matcher.js';

/** A part of a reply's text, separated. Either field may be empty. */
export interface ReplyPiece {
  readonly reasoning: string;
  readonly content: string;
}

/** The longest white space that is buffered, in UTF-16 units; longer white space is shown. */
const MAX_SPACE = 256;

/**
 * Separates a reply's thought from its content while the text arrives, wherever it is split.
 *
 *     before --start--> thought --end--> before --anything else--> content
 *
 * A thought begins the reply, or follows another one; a later mark is text, unless the format has thoughts anywhere. White
 * space at a thought's edges is dropped, and so is white space between it and the content (like llama.cpp's parsers, except
 * that they keep white space before the end mark). Without a thought the content is the unchanged text.
 */
export class ThoughtSplitter {
  readonly #format: ThoughtFormat;
  /** Marks that may occur before content has begun. */
  readonly #marks: readonly string[];
  /** Marks that may occur within the content. */
  readonly #ends: readonly string[];
  #close: StopMatcher;
  #state: 'before' | 'thought' | 'content' = 'before';
  /** Before: text that is not yet known to be a mark or content. */
  #buffered = '';
  #end = new StopMatcher([]);
  /** Thought: white space that is dropped if the thought ends after it. */
  #space = '';
  /** The current thought has shown text. */
  #begun = false;
  /** Number of ended thoughts. */
  #thoughts = 0;

  constructor(format: ThoughtFormat) {
    this.#format = format;
    this.#marks = [...format.starts, ...format.headers].sort((a, b) => b.length - a.length);
    this.#ends = this.#endMarks(true);
    this.#close = this.#contentEnd();
    if (format.open) this.#think();
  }

  /** Content is being read, and none of it is buffered. */
  get flowing(): boolean {
    return this.#state === 'content' && !this.#close.isBuffering;
  }

  /** A mark that ends the content, or a part of it, may begin in this text of several characters. */
  mayEndIn(text: string): boolean {
    return text.length > 1 && this.#ends.some((mark) => text.includes(mark[0] ?? ''));
  }

  /** The text so far ends within a thought. */
  get thinking(): boolean {
    return this.#state === 'thought';
  }

  /** The text may be within a thought, now or later. */
  get mayThink(): boolean {
    return this.#state !== 'content' || this.#format.anywhere === true || this.#format.part !== undefined;
  }

  /** Adds text; returns the newly separated parts. */
  push(text: string): ReplyPiece {
    let reasoning = '';
    let content = '';
    let rest = text;
    while (rest !== '') {
      switch (this.#state) {
        case 'before':
          rest = this.#before(rest);
          break;
        case 'thought':
          reasoning += this.#visible(this.#end.push(rest));
          rest = this.#end.matched === undefined ? '' : this.#endThought(this.#end.matched, this.#end.rest);
          break;
        case 'content':
          content += this.#close.push(rest);
          rest = this.#close.matched === undefined ? '' : this.#endPart(this.#close.matched, this.#close.rest);
      }
    }
    return { reasoning, content };
  }

  /** The reply has ended: returns what was buffered, except white space at the end of a thought. */
  end(): ReplyPiece {
    if (this.#state === 'thought') return { reasoning: this.#visible(this.#end.end()), content: '' };
    // Where each part of a reply begins with a mark, what is buffered is the beginning of one.
    const buffered = this.#state === 'before' && this.#format.part !== undefined ? '' : this.#buffered;
    this.#buffered = '';
    return {
      reasoning: '',
      content: this.#close.push(this.#thoughts > 0 ? buffered.trimStart() : buffered) + this.#close.end(),
    };
  }

  /** Returns the unprocessed text, in the new state. */
  #before(text: string): string {
    const buffered = this.#buffered + text;
    const lead = buffered.trimStart();
    const after = this.#thoughts > 0;
    const wrap = after ? this.#format.wrap?.[0] : undefined;
    const marks = wrap === undefined ? this.#marks : [...this.#marks, wrap];
    // The longest of those that begin alike, so one that may still continue is waited for.
    const longer = marks.some((own) => own.length > lead.length && own.startsWith(lead));
    const mark = longer ? undefined : marks.find((own) => lead.startsWith(own));
    this.#buffered = '';
    if (mark !== undefined) {
      if (this.#format.starts.includes(mark)) this.#think();
      else this.#state = 'content';
      if (mark === wrap) this.#close = this.#contentEnd(true);
      return lead.slice(mark.length);
    }
    if (longer && (after || buffered.length - lead.length <= MAX_SPACE)) {
      this.#buffered = after ? lead : buffered;
      return '';
    }
    this.#state = 'content';
    return after ? lead : buffered;
  }

  #contentEnd(wrapped = false): StopMatcher {
    return new StopMatcher(this.#endMarks(wrapped));
  }

  /** Marks that are no text within the content. */
  #endMarks(wrapped: boolean): readonly string[] {
    const { close, part, anywhere, wrap, starts, ends } = this.#format;
    const marks = [close, part, wrapped ? wrap?.[1] : undefined, ...(anywhere === true ? [...starts, ...ends] : [])];
    return marks.filter((mark) => mark !== undefined);
  }

  /** Returns the text after a mark within the content. After the one that ends the whole content, the rest is dropped. */
  #endPart(mark: string, rest: string): string {
    const { close, part, starts } = this.#format;
    if (mark === close) return '';
    this.#close = this.#contentEnd();
    if (mark === part) this.#state = 'before';
    else if (starts.includes(mark)) this.#think();
    return rest;
  }

  #think(): void {
    this.#state = 'thought';
    this.#end = new StopMatcher([...this.#format.ends, ...this.#format.implicitEnds]);
    this.#space = '';
    this.#begun = false;
  }

  #endThought(mark: string, rest: string): string {
    this.#state = 'before';
    this.#thoughts += 1;
    return this.#format.ends.includes(mark) ? rest : mark + rest;
  }

  #visible(thought: string): string {
    const text = this.#space + (this.#begun ? thought : thought.trimStart());
    if (text === '') return '';
    const shown = text.trimEnd();
    this.#space = text.slice(shown.length);
    if (this.#space.length > MAX_SPACE) {
      this.#space = '';
      return text;
    }
    if (shown === '') return '';
    // Consecutive thoughts are one text for the caller.
    const gap = !this.#begun && this.#thoughts > 0 ? '\n' : '';
    this.#begun = true;
    return gap + shown;
  }
}
