import type { CallSyntax } from '../../protocol/reply-format.js';

/** A reply's calls as they are parsed, and what constrains them. */

/** A part of a call's arguments, JSON text. The call's first part names it and has no arguments yet. */
export interface CallPiece {
  /** The call's place among the reply's calls. */
  readonly index: number;
  readonly name?: string;
  readonly arguments: string;
}

/** The parts of a reply that are certain now. */
export interface CallText {
  readonly content: string;
  readonly calls: readonly CallPiece[];
}

/** A {@link CallText} while it is made. */
export class ParsedText implements CallText {
  content = '';
  readonly calls: CallPiece[] = [];
}

/** What constrains a reply to a call's syntax while one is being written. */
export interface CallConstraint {
  /** A call begins with `text`, the last that was pushed but for what followed it. False: it is unconstrained, so it is no call. */
  begin(text: string): boolean;
  /** The calls' closing text was generated. */
  end(): void;
}

/** For replies whose own grammar constrains all of them. */
export const ALWAYS_CONSTRAINED: CallConstraint = { begin: () => true, end: () => undefined };

/** The texts that calls are recognised by: the mark, and what is written in place of all of `open` and begins otherwise. */
export function marksOf({ mark, alsoOpen = [] }: Pick<CallSyntax, 'mark' | 'alsoOpen'>): readonly string[] {
  return [mark, ...alsoOpen.filter((open) => !open.startsWith(mark))];
}

/** White space that is buffered, since it is dropped beside a call; more than this is content. */
export const MAX_SPACE = 64;

/**
 * Splits text at the first of these marks: `content` is certainly content. `rest` begins with the white space before the mark,
 * `spaces` characters; without a mark it is what may be the beginning of one, and `spaces` is undefined.
 */
export function splitBeforeMark(
  text: string,
  marks: readonly string[],
): { readonly content: string; readonly rest: string; readonly spaces: number | undefined } {
  const places = marks.map((mark) => text.indexOf(mark)).filter((place) => place >= 0);
  const at = places.length > 0 ? Math.min(...places) : -1;
  const begun = at >= 0 ? at : text.length - Math.max(...marks.map((mark) => beginning(mark, text)));
  // How much of the white space before it is buffered.
  const spaces = Math.min(begun - text.slice(0, begun).trimEnd().length, MAX_SPACE);
  const end = begun - spaces;
  return { content: text.slice(0, end), rest: text.slice(end), spaces: at >= 0 ? spaces : undefined };
}

/** How much of `text`'s end may be the beginning of `mark`, white space before it not counted. */
function beginning(mark: string, text: string): number {
  for (let length = Math.min(mark.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(mark.slice(0, length))) return length;
  }
  return 0;
}
