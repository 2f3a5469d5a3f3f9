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
