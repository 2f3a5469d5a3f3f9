/** What customers write about. Of every list each fifth entry is kept for evaluation (draw.ts). */
export interface Intent {
  /** Names of the option that is right, all meaning the same. */
  readonly names: readonly string[];
  /** The team that takes it. */
  readonly team: string;
  readonly description: string;
  /** Ends "Does the customer …?" and "The customer …". */
  readonly asks: readonly string[];
  readonly says: readonly string[];
}
