/** Opens the store of a fleet. app.ts loads this file only where `store.url` is set. */
import { join } from 'node:path';
import type { KeyLimiter } from '../access/limits.js';
import type { Config } from '../config/config.js';
import { storeAddressOf } from '../config/store-schema.js';
import type { Clock } from '../lib/clock.js';
import type { CreditMetrics, StoreMetrics } from '../telemetry/access-metrics.js';
import type { Log } from '../telemetry/logger.js';
import { postedFile } from '../usage/delivery/files.js';
import { StoreClaims } from './claims.js';
import { StoreCredit } from './credit.js';
import { Database } from './database.js';
import { StoreLimits } from './limits.js';
import { Posting } from './posting.js';
import { StoreQuotas } from './quotas.js';
import { placeIn, Replica } from './replica.js';

export interface Store {
  readonly keyLimits: KeyLimiter;
  readonly claims: StoreClaims;
  readonly quotas: StoreQuotas;
  /** Undefined unless credit is in the store. It is closed before the spool, which it reads. */
  readonly credit: StoreCredit | undefined;
  readonly replica: Pick<Replica, 'fenced'>;
  /**
   * Joins the fleet. Call it once, when nothing else can end the start: it takes the place of another process with this data folder.
   * Rejects with one line if the store answers that it is not prepared; one that does not answer is tried again in the background.
   */
  begin(): Promise<void>;
  /** Sends what the store is to know of this replica's end, and closes all connections. Never rejects. */
  close(): Promise<void>;
}

type StoreSettings = Pick<Config, 'store' | 'limits' | 'idempotency' | 'credit' | 'dataDir' | 'usage'>;

/**
 * Prepares what the store is used for, and connects to nothing yet. Rejects with one line if `dataDir` cannot be written. `lost`: credit
 * will not be available, for the reason in the line; it may come long after the start, once the store answers.
 */
export async function openStore(
  { store, limits, idempotency, credit: settings, dataDir, usage }: StoreSettings,
  clock: Clock,
  log: Log,
  metrics: { readonly store: StoreMetrics; readonly credit: CreditMetrics },
  lost: (line: string) => void,
): Promise<Store> {
  const address = storeAddressOf(store.url ?? '');
  if (!address) throw new Error('store.url is no address of a store');
  const database = await Database.open(clock, {
    address,
    connections: store.connections,
    timeoutMs: store.timeoutMs,
    ...(store.passwordFile !== undefined && { passwordFile: store.passwordFile }),
    ...(store.caFile !== undefined && { caFile: store.caFile }),
    opened: (reason, retryAfterMs) => log.warn('store is left alone', { reason, retryAfterMs }),
    closed: () => log.info('store answers again'),
    called: metrics.store.called,
  });
  const replica = new Replica({ clock, log, database, place: await placeIn(dataDir), leaseMs: store.leaseMs });
  const parts = { clock, log, database, replica };
  const { whenDown, timeoutMs } = store;
  const keyLimits = new StoreLimits({ ...parts, defaults: limits, whenDown, timeoutMs });
  const claims = new StoreClaims({ ...parts, keepMs: idempotency.keepMs });
  const quotas = new StoreQuotas({ ...parts, whenDown, timeoutMs });
  const openCredit = (): StoreCredit => {
    const { onLostBalances: onLost } = settings;
    const { uncovered, recalled: recalling } = metrics.credit;
    const kept = { saved: postedFile(join(dataDir, 'usage')), keepBytes: usage.maxBacklogBytes / 2 };
    const opened = (): void => credit.reopened();
    const posting = new Posting({ ...parts, ...kept, onLost, uncovered, lost, opened });
    const credit = new StoreCredit({ ...parts, posting, timeoutMs, recalling });
    metrics.credit.reservations = () => credit.outstanding;
    metrics.credit.fleet = () => ({ accounts: credit.accounts, lagMs: posting.lagMs });
    return credit;
  };
  const credit = settings.source === 'store' ? openCredit() : undefined;
  metrics.store.fleet = () => ({
    state: replica.fenced ? 'fenced' : replica.session ? 'joined' : 'apart',
    replicas: replica.replicas,
    places: keyLimits.size,
    keys: claims.size,
    tokens: quotas.size,
  });
  const close = async (): Promise<void> => {
    await Promise.all([keyLimits.close(), claims.close(), quotas.close(), credit?.close()]);
    await replica.close();
    await database.close();
  };
  const begin = async (): Promise<void> => {
    const unprepared = await replica.begin();
    if (unprepared !== undefined) throw new Error(unprepared);
  };
  return { keyLimits, claims, quotas, credit, replica, begin, close };
}
