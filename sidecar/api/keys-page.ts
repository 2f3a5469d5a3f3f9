/** A file of its own, without imports: the console page's scripts are checked against it, and then against all that it imports. */

/** One key, as the keys file has it, but for its hash. */
export interface KeyView {
  readonly id: string;
  readonly account?: string;
  readonly state: 'revoked' | 'expired' | 'unattributed' | 'frozen' | 'good';
  readonly created: string;
  readonly expires?: string;
  readonly revoked?: string;
  readonly rotated?: string;
  readonly class?: string;
  readonly weight?: number;
  /** By group of routes. */
  readonly limits?: Readonly<Record<string, { readonly inFlight?: number; readonly perMinute?: number }>>;
  /** By environment. */
  readonly entitlements: Readonly<Record<string, EntitlementView>>;
  /** The last UTC day, `2026-10-03`, on which the key used a model; null: in no day that is kept, or not known. */
  readonly lastUsed: string | null;
}

export interface EntitlementView {
  readonly models: 'all' | readonly string[];
  readonly routes?: readonly string[];
  readonly cohort?: string;
  readonly usage?: 'account';
  readonly tiers?: readonly string[];
  readonly tokensPerMinute?: number;
  readonly tokensPerDay?: number;
  readonly tokensPerMonth?: number;
}

export interface AccountView {
  readonly account: string;
  readonly frozen: boolean;
  /** The quotas of all its keys together. */
  readonly quotas: Pick<EntitlementView, 'tokensPerMinute' | 'tokensPerDay' | 'tokensPerMonth'>;
  /**
   * US dollars, as text; null: credit is not checked, or balances are not known. `ageMs`: how long ago a fleet's store reported the
   * balance; absent: the balance is the present one.
   */
  readonly balance: { readonly granted: string; readonly available: string; readonly ageMs?: number } | null;
}

/** The answer of GET /keys. */
export interface KeysView {
  readonly file: string;
  readonly sha256: string;
  /** In force. */
  readonly keys: number;
  readonly problem?: string;
  /** From here on only with an operator's secret, and with keys asked for. */
  readonly environment?: string;
  /** Ids of the configured models. */
  readonly models?: readonly string[];
  /** Whether grants can be added. */
  readonly credit?: boolean;
  readonly data?: readonly KeyView[];
  /** Of these keys. */
  readonly accounts?: readonly AccountView[];
  readonly hasMore?: boolean;
}
