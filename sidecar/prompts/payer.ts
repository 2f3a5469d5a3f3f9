/** The account that an item is charged to. */
export interface Payer {
  readonly account: string;
  /** The account's weight: above 0. */
  readonly weight: number;
}
