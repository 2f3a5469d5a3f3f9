/** The account that a body belongs to and whose share of the host's time it uses. */
export interface WeightedAccount {
  readonly account: string;
  /** The account's weight: above 0. */
  readonly weight: number;
}
