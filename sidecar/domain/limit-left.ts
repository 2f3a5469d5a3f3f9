export interface LimitLeft {
  readonly limit: number;
  readonly remaining: number;
  /** Until all of it is there again, ms. */
  readonly resetMs: number;
}

/** The limits that answers tell about: requests in any minute, tokens of the quota with the fewest left. Undefined if there is no such limit. */
export interface LimitsLeft {
  readonly requests?: LimitLeft | undefined;
  readonly tokens?: LimitLeft | undefined;
}
