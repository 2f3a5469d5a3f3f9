/**
 * Tokens a day, by key: the quota of an entitlement from one midnight UTC to the next. Prompt and completion tokens are
 * counted when a request ends; a request is refused only once the quota is used up, so concurrent requests may exceed
 * it. Kept in memory: a restart resets it, and sidecars do not share it.
 */

/** The key whose quota applies. */
export interface QuotaCaller {
  readonly account: string;
  readonly keyId: string;
  /** Absent: no quota. */
  readonly tokensPerDay?: number;
}

const DAY_MS = 86_400_000;

/**
 * Keys that are counted at once. An authorizer may report a new key with each request; past this number the half with the fewest tokens is
 * forgotten. So to be forgotten, a key needs as many others with more tokens than it has used itself.
 */
export const MOST_KEYS = 65_536;

/** Today's usage of keys with a quota. */
export class TokenQuotas {
  readonly #date: () => Date;
  readonly #used = new Map<string, number>();
  /** The day that is counted, in days since 1970. */
  #day = 0;

  /** `date`: wall-clock time. */
  constructor(date: () => Date) {
    this.#date = date;
  }

  /** Milliseconds until the next day, at most a day, if the key's quota is used up; otherwise 0. */
  waitMs(caller: QuotaCaller): number {
    if (caller.tokensPerDay === undefined) return 0;
    const now = this.#turn();
    const used = this.#used.get(idOf(caller)) ?? 0;
    return used < caller.tokensPerDay ? 0 : DAY_MS - (now % DAY_MS);
  }

  /** Counts the tokens of a finished request. */
  charge(caller: QuotaCaller, tokens: number): void {
    if (caller.tokensPerDay === undefined || tokens <= 0) return;
    this.#turn();
    const id = idOf(caller);
    this.#used.set(id, (this.#used.get(id) ?? 0) + tokens);
    if (this.#used.size > MOST_KEYS) this.#forgetHalf();
  }

  /** Number of counted keys. */
  get size(): number {
    return this.#used.size;
  }

  #forgetHalf(): void {
    const fewestFirst = [...this.#used].sort(([, a], [, b]) => a - b);
    for (const [id] of fewestFirst.slice(0, MOST_KEYS / 2)) this.#used.delete(id);
  }

  /**
   * Resets the counts at a new day, and returns the time in epoch ms. A clock that is set back over midnight does not
   * begin that day a second time. If it is set back by more than a day, the day follows it, so that no key waits for a day
   * in the far future; the counts stay until the next midnight.
   */
  #turn(): number {
    const now = this.#date().getTime();
    const day = Math.floor(now / DAY_MS);
    if (day > this.#day) this.#used.clear();
    if (day > this.#day || day < this.#day - 1) this.#day = day;
    return now;
  }
}

function idOf({ account, keyId }: QuotaCaller): string {
  return JSON.stringify([account, keyId]);
}
