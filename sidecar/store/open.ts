/** Opens the store of a fleet. app.ts loads this file only where `store.url` is set. */
import { join } from 'node:path';
import type { WatchedKeys } from '../access/key-identity.js';
import type { FollowedFleet, FollowedGrants, FollowedKeys, FollowedPrices } from '../access/key-tasks.js';
import { keysFileOf, priceFileOf, type Config } from '../config/config.js';
import { storeAddressOf } from '../config/store-schema.js';
import { FileProblem } from '../lib/checked-file.js';
import type { Clock } from '../lib/clock.js';
import type { CreditMetrics, StoreMetrics } from '../telemetry/access-metrics.js';
import type { Log } from '../telemetry/logger.js';
import { postedFile } from '../usage/delivery/files.js';
import { sha256 } from '../usage/durable-sums.js';
import { parsePrices, readPriceFile, readPriceText, type PriceList } from '../usage/prices.js';
import { StoreClaims } from './claims.js';
import { StoreCredit } from './credit.js';
import { Database } from './database.js';
import * as operate from './keys.js';
import { StoreLimits } from './limits.js';
import { Posting } from './posting.js';
import { StoreQuotas } from './quotas.js';
import { placeIn, Replica } from './replica.js';
import { Snapshot, type SnapshotOptions } from './snapshot.js';
import { StoreUsage } from './usage.js';

/** `credit`, `keys`, `prices`, `grants`: undefined unless they are in the store. `credit` is closed before the spool, which it reads. */
export type Store = Readonly<Awaited<ReturnType<typeof openStore>>>;

type StoreSettings = Pick<
  Config,
  'store' | 'limits' | 'idempotency' | 'credit' | 'keys' | 'pricing' | 'models' | 'dataDir' | 'usage' | 'request'
>;

/**
 * Prepares what the store is used for. Connects only for keys and prices, which are read for the first time if the store answers. Rejects
 * with one line if `dataDir` cannot be written, or there are no prices. `watched`: follows the keys file, or the copy of the store's keys;
 * undefined: no keys are used. `lost`: credit will not be available, for the reason in the line; it may come long after the start, once the
 * store answers.
 */
export async function openStore(
  config: StoreSettings,
  clock: Clock,
  log: Log,
  metrics: { readonly store: StoreMetrics; readonly credit: CreditMetrics },
  watched: WatchedKeys | undefined,
  lost: (line: string) => void,
) {
  const { store, limits, idempotency, credit: settings, dataDir } = config;
  const { connections, timeoutMs, passwordFile, caFile, whenDown } = store;
  const address = storeAddressOf(store.url ?? '');
  if (!address) throw new Error('store.url is no address of a store');
  const database = await Database.open(clock, {
    address,
    connections,
    timeoutMs,
    passwordFile,
    caFile,
    opened: (reason, retryAfterMs) => log.warn('store is left alone', { reason, retryAfterMs }),
    closed: () => log.info('store answers again'),
    called: metrics.store.called,
  });
  const replica = new Replica({ clock, log, database, place: await placeIn(dataDir), leaseMs: store.leaseMs });
  const parts = { clock, log, database, replica };
  const keyLimits = new StoreLimits({ ...parts, defaults: limits, whenDown, timeoutMs });
  const claims = new StoreClaims({ ...parts, keepMs: idempotency.keepMs });
  const quotas = new StoreQuotas({ ...parts, whenDown, timeoutMs });
  const usage = new StoreUsage(parts);
  const openCredit = (): StoreCredit => {
    const { onLostBalances: onLost } = settings;
    const { uncovered, recalled: recalling } = metrics.credit;
    const kept = { saved: postedFile(join(dataDir, 'usage')), keepBytes: config.usage.maxBacklogBytes / 2 };
    const opened = (): void => credit.reopened();
    const posting = new Posting({ ...parts, ...kept, onLost, uncovered, lost, opened });
    const credit = new StoreCredit({ ...parts, posting, timeoutMs, recalling });
    metrics.credit.reservations = () => credit.outstanding;
    metrics.credit.fleet = () => ({ accounts: credit.accounts, lagMs: posting.lagMs });
    return credit;
  };
  const credit = settings.source === 'store' ? openCredit() : undefined;
  metrics.store.fleet = () => ({
    state: replica.fenced ? 'fenced' : replica.answered ? 'joined' : 'apart',
    replicas: replica.replicas,
    places: keyLimits.size,
    keys: claims.ends.size,
    tokens: quotas.size,
  });
  const documents = await openDocuments({ clock, log, database, pollMs: store.pollMs }, config, watched).catch(
    async (error: unknown) => {
      await database.close();
      throw error;
    },
  );
  /** Sends what the store is to know of this replica's end, and closes all connections. Never rejects. */
  const close = async (): Promise<void> => {
    const ends = [keyLimits.close(), claims.ends.close(), quotas.ends.close(), usage.close()];
    await Promise.all([documents.close(), ...ends, credit?.close()]);
    await replica.close();
    await database.close();
  };
  /**
   * Joins the fleet. Call it once, when nothing else can end the start: it takes the place of another process with this data folder.
   * Rejects with one line if the store answers that it is not prepared; one that does not answer is tried again in the background.
   */
  const begin = async (): Promise<void> => {
    const unprepared = await replica.begin();
    if (unprepared !== undefined) throw new Error(unprepared);
  };
  const { keys, prices } = documents;
  const grants: FollowedGrants | undefined = credit && {
    inForce: { sign: '' },
    reload: () => Promise.resolve(),
    change: (operator, task) => operate.tried(() => operate.grantCredit(database, operator, task)),
  };
  const fleet: FollowedFleet = {
    replicas: () => operate.tried(() => operate.readReplicas(database)),
    writeOff: (operator, id) =>
      operate.tried(() => operate.writeOff(database, operator, id, config.request.timeoutMs || operate.LONGEST_MS)),
  };
  return { keyLimits, claims, quotas, usage, credit, keys, prices, grants, fleet, replica, begin, close };
}

type FleetPrices = FollowedPrices & { readonly list: PriceList };

type Following = Pick<SnapshotOptions, 'clock' | 'log' | 'database' | 'pollMs'>;

/** The keys of the store, in the file that `watched` follows. */
function keysOf(parts: Following, config: StoreSettings, watched: WatchedKeys) {
  const { staleMs } = config.store;
  const file = keysFileOf(config);
  const refused = async (): Promise<string | undefined> => (await watched.inForce()).problem;
  const snapshot = new Snapshot({ ...parts, name: 'keys', file, taken: () => watched.reload(), refused });
  watched.isCurrent = () => snapshot.ageMs <= (staleMs === 0 ? Number.MAX_VALUE : staleMs);
  const keys: FollowedKeys = {
    inForce: async () => {
      const { problem } = snapshot;
      return { ...(await watched.inForce()), ...(problem !== undefined && { problem }) };
    },
    reload: () => snapshot.sync(),
    change: (operator, task) => operate.doStoreTask(parts.database, operator, task),
  };
  return { snapshot, keys };
}

/** The prices of the store. `open` rejects with one line if there are none that this sidecar can use. */
function pricesOf(parts: Following, config: StoreSettings) {
  const { log, database } = parts;
  const file = priceFileOf(config) ?? '';
  const read = (): Promise<PriceList> => readPriceFile(file, config.models, Date.now());
  let list: PriceList | undefined;
  let refused: string | undefined;
  const snapshot = new Snapshot({
    ...parts,
    name: 'prices',
    file,
    taken: async () => {
      try {
        list?.take(await read());
        refused = undefined;
        log.info('prices loaded', { file });
      } catch (error) {
        if (!(error instanceof FileProblem)) throw error;
        refused = error.problem;
        log.error('prices refused, the last valid ones stay in force', { file, reason: refused });
      }
    },
  });
  const open = async (): Promise<FleetPrices> => {
    const opened = (list = await read().catch((error: unknown) => {
      const why = snapshot.problem ?? 'the store has none for this sidecar: run ra-sidecar prices import';
      throw new Error(`no prices: ${why} (${(error as Error).message})`, { cause: error });
    }));
    return {
      list: opened,
      read: async () => {
        const text = await readPriceText(file);
        return { text, revision: sha256(text), problem: snapshot.problem ?? refused };
      },
      change: async (operator, text, revision) => {
        try {
          parsePrices(text, file, config.models, Date.now());
        } catch (error) {
          if (error instanceof FileProblem) return { kind: 'invalid', why: error.problem };
          throw error;
        }
        const end = await operate.tried(() => operate.changePrices(database, text, revision, operator));
        if (!end) await snapshot.sync();
        return end;
      },
    };
  };
  return { snapshot, open };
}

/** Follows the keys and prices of the store, as far as they are there. */
async function openDocuments(parts: Following, config: StoreSettings, watched: WatchedKeys | undefined) {
  const keys = watched && config.keys.source === 'store' ? keysOf(parts, config, watched) : undefined;
  const prices = config.pricing.source === 'store' ? pricesOf(parts, config) : undefined;
  // Who may connect to the database may notify, of any name.
  const followed = new Map(Object.entries({ keys: keys?.snapshot, prices: prices?.snapshot }));
  const all = [...followed.values()].filter((each) => each !== undefined);
  const stop =
    all.length > 0 ? parts.database.listen(operate.CHANGES, (name) => void followed.get(name)?.sync()) : undefined;
  const close = async (): Promise<void> => {
    await Promise.all([stop?.(), ...all.map((each) => each.close())]);
  };
  await Promise.all(all.map((each) => each.begin()));
  try {
    return { keys: keys?.keys, prices: await prices?.open(), close };
  } catch (error) {
    await close();
    throw error;
  }
}
