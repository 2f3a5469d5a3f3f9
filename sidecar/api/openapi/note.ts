/** What a schema cannot say of one field. */
export interface Note {
  readonly description: string;
  /** What an absent field counts as. */
  readonly default?: unknown;
}

/** Notes by named part, then by field. */
export type Notes = Readonly<Record<string, Readonly<Record<string, Note>>>>;
