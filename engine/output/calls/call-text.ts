/** What a reply's calls are to those who read them, and to what holds them. */

/** A part of a call's arguments, JSON text. The call's first part names it and has no arguments yet. */
export interface CallPiece {
  /** The call's place among the reply's calls. */
  readonly index: number;
  readonly name?: string;
  readonly arguments: string;
}

/** What became certain of a reply. */
export interface CallText {
  readonly content: string;
  readonly calls: readonly CallPiece[];
}

/** What holds a reply to a call's syntax while one is being written. */
export interface CallHold {
  /** A call begins with `text`, the last that was pushed but for what followed it. False: nothing holds it, so it is no call. */
  begin(text: string): boolean;
  /** The calls' closing text came out. */
  end(): void;
}
