/** What a replica has of one account of the store: the amounts of credit.ts, without the calls that change them. */
import type { Reserved } from '../access/credit.js';

/** A request that waits for a draw. */
export interface Waiting {
  readonly picodollars: bigint;
  readonly answered: (kind: Reserved['kind']) => void;
}

/** One account at this replica. Amounts are picodollars since this process began. */
export class Purse {
  readonly account: string;
  drawn = 0n;
  settled = 0n;
  reserved = 0n;
  /** Sent back, or perhaps: the answer is not there. */
  returning = 0n;
  /** An answer was lost: the store may have drawn more, or less. */
  unsure = false;
  /** A call about it is in flight. */
  busy = false;
  /** Others asked for what is not used, while a call was in flight. */
  recalled = false;
  readonly waiting: Waiting[] = [];
  /** Reserved in this window and in the last one. */
  recent = 0n;
  before = 0n;
  /** The least that was in hand in this window. */
  lowest = 0n;
  /** A need was not covered: until then, a clock reading, the store has no more than so much. */
  short: { readonly until: number; readonly available: bigint } | undefined;
  /** Clock reading before which nothing is drawn ahead. */
  aheadFrom = -Infinity;

  constructor(account: string) {
    this.account = account;
  }
}

export function inHand({ drawn, settled, reserved, returning }: Purse): bigint {
  return drawn - settled - reserved - returning;
}

/** What is drawn ahead: as much as was reserved in a window. */
export function chunkOf({ recent, before }: Purse): bigint {
  return recent > before ? recent : before;
}

/** What is in hand has become less. */
export function sink(purse: Purse): void {
  const now = inHand(purse);
  if (now < purse.lowest) purse.lowest = now;
}

/** Reserves what is in hand. */
export function hold(purse: Purse, picodollars: bigint): void {
  purse.reserved += picodollars;
  purse.recent += picodollars;
  sink(purse);
}

/** Whether the store could not cover so much a moment ago. */
export function isShort(purse: Purse, picodollars: bigint, now: number): boolean {
  const { short } = purse;
  return short !== undefined && now < short.until && picodollars > short.available + inHand(purse);
}
