/** Balances of a fleet's accounts for those who ask: read from the store, and remembered with their age. Nothing is decided by them. */
import type { Balance, Credit } from '../access/credit.js';
import type { Clock } from '../lib/clock.js';
import { setNewest } from '../lib/id-map.js';
import type { Database } from './database.js';

/** Time for which a balance that was read is returned without asking the store again, ms. */
const FRESH_MS = 1000;

/** Accounts that are remembered. Those that were read longest ago are forgotten. */
const MOST = 10_000;

interface Row {
  readonly account: string;
  readonly granted: string;
  readonly settled: string;
  readonly held: string;
}

/**
 * Reads balances, those of one call together. While the store does not answer, they are those of the last answer; an account that none was
 * read of is missing then.
 */
export function balancesIn({
  clock,
  database,
}: {
  readonly clock: Clock;
  readonly database: Database;
}): Credit['balances'] {
  const known = new Map<string, Balance & { readonly at: number }>();
  const asking = new Map<string, Promise<void>>();
  const ask = async (accounts: readonly string[]): Promise<void> => {
    const at = clock.now();
    const answer = await database.call<Row>('balances_of', [accounts]);
    for (const account of accounts) asking.delete(account);
    if (answer.kind === 'down') return;
    const rows = new Map(answer.rows.map((row) => [row.account, row]));
    for (const account of accounts) {
      const { granted = 0, settled = 0, held = 0 } = rows.get(account) ?? {};
      const balance = { granted: BigInt(granted), settled: BigInt(settled), reserved: BigInt(held), at };
      setNewest(known, account, balance, MOST);
    }
  };
  return async (accounts) => {
    const isFresh = (account: string): boolean => clock.now() < (known.get(account)?.at ?? -Infinity) + FRESH_MS;
    const missing = accounts.filter((account) => !isFresh(account) && !asking.has(account));
    if (missing.length > 0) {
      const asked = ask(missing);
      for (const account of missing) asking.set(account, asked);
    }
    await Promise.all(accounts.flatMap((account) => asking.get(account) ?? []));
    return new Map(
      accounts.flatMap((account) => {
        const found = known.get(account);
        if (!found) return [];
        const { at, ...balance } = found;
        return [[account, { ...balance, ageMs: Math.round(clock.now() - at) }]];
      }),
    );
  };
}
