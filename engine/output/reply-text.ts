import type { ReplyFormat, ThoughtFormat } from '../protocol/reply-format.js';
import { CallParser } from './calls/call-parser.js';
import type { CallConstraint, CallPiece } from './calls/call-text.js';
import { StopMatcher } from './stop-matcher.js';

/** The newly parsed parts of a reply. Parts may be empty; their order within one result is not defined. */
export interface ReplyParts extends ReplyPiece {
  readonly calls: readonly CallPiece[];
}

/**
 * Converts one reply's token bytes to text: whole characters, thoughts and calls separated, and never a part of a stop
 * string.
 */
export class ReplyText {
  /** Streaming: bytes of an incomplete character are buffered. Invalid bytes become U+FFFD, as in web standards. */
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  readonly #thought: ThoughtSplitter | undefined;
  readonly #calls: CallParser | undefined;
  readonly #stops: StopMatcher;

  /**
   * `stops` end only the content: a caller that stops at a newline does not want thoughts or arguments to end there.
   * `constraint`: for {@link CallParser}.
   */
  constructor(
    stops: readonly string[],
    format: Pick<ReplyFormat, 'thought' | 'calls'> = {},
    constraint?: CallConstraint,
  ) {
    this.#thought = format.thought && new ThoughtSplitter(format.thought);
    this.#calls = format.calls && new CallParser(format.calls, constraint);
    this.#stops = new StopMatcher(stops);
  }

  /** The stop string that ended the reply, once found. */
  get matchedStop(): string | undefined {
    return this.#stops.matched;
  }

  /** Calls whose arguments are complete. */
  get calls(): number {
    return this.#calls?.calls ?? 0;
  }

  /** The text so far ends within a thought. */
  isThinking(): boolean {
    return this.#thought?.thinking ?? false;
  }

  /** The text may be within a thought, now or later. */
  get mayThink(): boolean {
    return this.#thought?.mayThink ?? false;
  }

  /** Adds one token's bytes; returns the newly parsed text, which is often empty. */
  push(bytes: Uint8Array): ReplyParts {
    const text = this.#decoder.decode(bytes, { stream: true });
    // A mark that ends the content may also be in a call's arguments or after them: parsing character by character shows which.
    const byCharacter = this.#calls !== undefined && this.#thought?.mayEndIn(text) === true;
    const all = { reasoning: '', content: '', calls: [] as CallPiece[] };
    for (const part of byCharacter ? text : [text]) {
      const { reasoning, content } = this.#withoutThoughts(part);
      const called = this.#calls?.push(content) ?? { content, calls: [] };
      all.reasoning += reasoning;
      all.content += this.#stops.push(called.content);
      all.calls.push(...called.calls);
    }
    return all;
  }

  /** Marks of thoughts within a call are text like any other. */
  #withoutThoughts(text: string): ReplyPiece {
    if (this.#thought === undefined) return { reasoning: '', content: text };
    const called = this.#calls?.reading === true && this.#thought.flowing;
    return called ? { reasoning: '', content: text } : this.#thought.push(text);
  }

  /** The reply has ended: returns the buffered text. Bytes of an incomplete character are dropped. */
  end(): ReplyParts {
    const { reasoning, content } = this.#thought?.end() ?? { reasoning: '', content: '' };
    const called = this.#calls?.push(content) ?? { content, calls: [] };
    const rest = called.content + (this.#calls?.end().content ?? '');
    return { reasoning, content: this.#stops.push(rest) + this.#stops.end(), calls: called.calls };
  }
}

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
