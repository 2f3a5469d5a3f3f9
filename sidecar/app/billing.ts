/** Prices and credit: the price list in force, and the credit ledger with its grants file, its history and its metrics. */
import { join } from 'node:path';
import { CREDIT, CreditLedger, type Credit, type Granted } from '../access/credit.js';
import { readLarge, type Gathering } from '../access/large-file.js';
import type { Clock } from '../lib/clock.js';
import type { Config } from '../config/config.js';
import { FollowedFile } from '../lib/followed-file.js';
import type { Log } from '../telemetry/logger.js';
import type { StoreCredit } from '../store/credit.js';
import type { PostedSpool } from '../store/posting.js';
import type { CreditMetrics } from '../telemetry/access-metrics.js';
import { rebuildBalances } from '../usage/balances.js';
import type { DurableSums } from '../usage/durable-sums.js';
import { CursorFile, postedFile } from '../usage/delivery/files.js';
import { BUILT_IN_PRICES, readPriceFile, type PriceList } from '../usage/prices.js';
import { comparePositions, START, type Position } from '../usage/spool-format.js';
import type { Closer, Closers } from './closers.js';

/**
 * How long a close waits for the last snapshot, or for summing up that is still running, ms. Without them the next start reads more of the
 * spool.
 */
export const CLOSE_MS = 5000;

export interface BillingOptions {
  readonly config: Pick<Config, 'models' | 'pricing' | 'credit' | 'dataDir'>;
  readonly clock: Clock;
  readonly metrics: CreditMetrics;
  readonly log: Log;
  readonly closers: Closers;
  /** Present where credit is in the store of a fleet. */
  readonly fleet?: StoreCredit | undefined;
  /** Present where prices are in the store: the list follows it. */
  readonly prices?: PriceList | undefined;
}

/** Prices and credit of one process. */
export interface Billing {
  readonly pricing: PriceList;
  /** Undefined if credit is not checked. */
  readonly credit: Credit | undefined;
  /** The credit file that is followed; absent if credit is not checked. */
  readonly grants?: Pick<FollowedFile<Grants>, 'inForce' | 'reload'>;
  /**
   * Sums up earlier usage and then accepts priced requests, which are refused as `unavailable` until then. Resolves
   * with undefined, or with a line that says why credit will never be available. Never rejects. Call it once. `spool`
   * has recovered; undefined if there is none, and spending is lost with this process.
   */
  begin(spool: PostedSpool | undefined): Promise<string | undefined>;
  /** The position from which the spool's records are still needed for the balances; undefined if none is needed. */
  keepFrom(): Position | undefined;
  /** Writes the balances, as far as the spool is durable: to be added once the spool is open, also if `begin` was not called. */
  readonly closer: Closer;
}

/** The grants of a credit file. */
class Grants implements Gathering<Granted> {
  readonly byAccount = new Map<string, bigint>();

  add(part: Granted): void {
    for (const [account, granted] of part) this.byAccount.set(account, granted);
  }
}

/** Reads the configured files, and follows that of grants. Rejects if one is invalid. */
export async function openBilling(options: BillingOptions): Promise<Billing> {
  const { config, fleet } = options;
  const { models, pricing: prices, dataDir } = config;
  const ofFile = async (file: string): Promise<PriceList> => readPriceFile(file, models, Date.now());
  const pricing = options.prices ?? (prices.file === undefined ? BUILT_IN_PRICES : await ofFile(prices.file));
  if (fleet) {
    return {
      pricing,
      credit: fleet,
      begin: (spool) => fleet.begin(spool),
      keepFrom: () => fleet.keepFrom,
      closer: { name: 'credit', withinMs: CLOSE_MS, close: () => fleet.close() },
    };
  }
  return await withoutStore(await openLocal(options, pricing), dataDir, options.log);
}

/**
 * Billing in a data folder whose credit was in the store of a fleet. It begins only if the store has posted every charge of the spool,
 * since nothing posts the others now, and they would be pruned.
 */
async function withoutStore(local: Billing, dataDir: string, log: Log): Promise<Billing> {
  const dir = join(dataDir, 'usage');
  const posted = await postedFile(dir).load();
  if (posted.kind === 'none') return local;
  // So that the next start need not read what this one has.
  const looked = new CursorFile(join(dir, 'posted-looked.json'));
  let isPosted = false;
  const begin = async (spool: PostedSpool): Promise<string | undefined> => {
    const { hasCharges } = await import('../store/posting.js');
    const found = [posted, await looked.load()].flatMap((each) => (each.kind === 'at' ? each.position : []));
    const before = found.filter((position) => comparePositions(position, spool.position) <= 0);
    if (await hasCharges(spool, before.sort(comparePositions).at(-1) ?? START))
      return `credit: the store may not have posted all that this data folder has charged; run ra-sidecar credit reconcile --data-dir ${dataDir}, or set credit.source to store`;
    await looked.save(spool.position);
    isPosted = true;
    return await local.begin(spool);
  };
  const failed = (fault: unknown): string => {
    log.error('spool cannot be searched for credit that is not posted', { fault });
    return 'credit: the spool cannot be read or its position not be saved';
  };
  return {
    ...local,
    begin: (spool) => (spool ? begin(spool).catch(failed) : local.begin(spool)),
    keepFrom: () => (isPosted ? local.keepFrom() : START),
  };
}

/** Prices, and the credit that this sidecar keeps for itself. */
async function openLocal(
  { config, clock, metrics, log, closers }: BillingOptions,
  pricing: PriceList,
): Promise<Billing> {
  const { credit, dataDir } = config;
  if (credit.file === undefined) {
    return {
      pricing,
      credit: undefined,
      begin: () => Promise.resolve(undefined),
      keepFrom: () => undefined,
      closer: { name: 'balances', close: () => undefined },
    };
  }

  let balances: DurableSums | undefined;
  let begun: Promise<string | undefined> | undefined;
  const { file } = credit;
  const { followed, value } = await FollowedFile.open({
    clock,
    file,
    read: () => readLarge(file, CREDIT, new Grants()),
    pollMs: credit.pollMs,
    taken: ({ byAccount }) => {
      ledger.grant(byAccount);
      log.info('credit file read again', { file, count: byAccount.size });
    },
    refused: (reason) => log.error('credit file is invalid, the previous grants stay in force', { file, reason }),
  });
  closers.add({ name: 'credit file', close: () => followed.close() });
  const ledger = new CreditLedger(value.byAccount, () => balances?.settled());
  metrics.reservations = () => ledger.outstanding;

  const rebuild = async (spool: PostedSpool): Promise<string | undefined> => {
    const rebuilt = await rebuildBalances({
      clock,
      spool,
      file: join(dataDir, 'usage', 'balances.json'),
      beginAnew: credit.onLostBalances === 'begin',
      listener: {
        damaged: (bytes) => log.error('spool is damaged, the damaged records are not in the balances', { bytes }),
        unwritten: (fault) => log.error('balances cannot be written', { fault }),
        begunAnew: (reason) => log.warn('balances are rebuilt', { reason }),
      },
    });
    if (rebuilt.kind === 'lost') return `credit: ${rebuilt.why}; see credit.onLostBalances`;
    balances = rebuilt.balances;
    ledger.open(rebuilt.settled);
    log.info('credit is open', { count: rebuilt.settled.size });
    return undefined;
  };
  return {
    pricing,
    credit: ledger,
    grants: followed,
    begin: async (spool) => {
      if (!spool) {
        ledger.open(new Map());
        return undefined;
      }
      begun = rebuild(spool).catch((fault: unknown) => {
        log.error('balances cannot be summed up', { fault });
        return 'credit: the spool cannot be read or the balances cannot be written';
      });
      return await begun;
    },
    keepFrom: () => balances?.keepFrom ?? START,
    closer: {
      name: 'balances',
      withinMs: CLOSE_MS,
      close: async () => {
        await begun;
        await balances?.close();
      },
      timedOut: () => log.error('balances not written in time'),
    },
  };
}
