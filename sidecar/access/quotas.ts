/**
 * Tokens a day, by key: what an entitlement grants from one midnight UTC to the next. Counted when a request is over,
 * prompt and completion together; a request is refused only once the quota is used up, so those that run at that moment
 * may pass it. Kept in memory: a restart forgets the day, and sidecars do not share it.
 */

/** Whose quota. */
export interface Quoted {
  readonly account: string;
  readonly keyId: string;
  /** Absent: no quota. */
  readonly tokensPerDay?: number;
}

const DAY_MS = 86_400_000;

/** What has been used today; it holds keys with a quota alone, so the keys file bounds it. */
export class TokenQuotas {
  readonly #date: () => Date;
  readonly #used = new Map<string, number>();
  /** Days since 1970. */
  #day = 0;

  /** `date`: wall-clock time. */
  constructor(date: () => Date) {
    this.#date = date;
  }

  /** Milliseconds until the next day, a day at most, if the key's quota is used up; otherwise 0. */
  waitMs(caller: Quoted): number {
    if (caller.tokensPerDay === undefined) return 0;
    const now = this.#turn();
    const used = this.#used.get(idOf(caller)) ?? 0;
    return used < caller.tokensPerDay ? 0 : (this.#day + 1) * DAY_MS - now;
  }

  /** Counts the tokens of a request that is over. */
  charge(caller: Quoted, tokens: number): void {
    if (caller.tokensPerDay === undefined || tokens <= 0) return;
    this.#turn();
    const id = idOf(caller);
    this.#used.set(id, (this.#used.get(id) ?? 0) + tokens);
  }

  /**
   * Forgets yesterday, and returns the time in epoch ms. A clock that is put back takes the day along, so that nobody waits
   * for a day that is years away, and never a day's length; what was counted stays, so that it brings no tokens back.
   */
  #turn(): number {
    const now = this.#date().getTime();
    const day = Math.floor(now / DAY_MS);
    if (day > this.#day) this.#used.clear();
    this.#day = day;
    return now;
  }
}

function idOf({ account, keyId }: Quoted): string {
  return JSON.stringify([account, keyId]);
}
