/**
 * What a fleet has used (migrations/quotas.ts). This sidecar puts the sums of each account and day that it has counted in the store, whole,
 * soon after they have changed; who asks gets the sum of what the sidecars of the fleet have put, and of what this one has counted by now.
 *
 * Sums are absolute, and those of a spool alone, so it does no harm to put them again: after a lost answer, and all of them at each start and
 * after a restore of the store.
 */
import { every, type Clock } from '../lib/clock.js';
import { TaskQueue } from '../lib/task-queue.js';
import { rowsOfText, textOfRows, type TotalsRow } from '../usage/totals-files.js';
import type { FleetUsage, Totals } from '../usage/totals.js';
import { BACKGROUND_MS, type Database } from './database.js';
import type { Replica } from './replica.js';

/** How soon sums are put, and the wait after a call that failed, ms: each time all keys of an account are written. */
const PUT_MS = 5000;

/** Sums of one call, each of which may have thousands of keys; the others follow in the next. */
const TOGETHER = 20;

/** The time between two removals of old days by one replica, ms. */
const SWEEP_MS = 3_600_000;

/** The length of a day in `2026-10-03 acme`, by which the sums of an account in a day are known. */
const DAY = '2026-10-03'.length;

export interface StoreUsageOptions {
  readonly clock: Clock;
  readonly database: Database;
  readonly replica: Replica;
}

/** Owned by what opens the store, which closes it. */
export class StoreUsage implements FleetUsage {
  readonly #options: StoreUsageOptions;
  /** One question at a time, so that none of these delays a request that is counted. */
  readonly #questions = new TaskQueue();
  readonly #changed = new Set<string>();
  #totals = (): Totals | undefined => undefined;
  /** In which all sums were put, or are among the changed ones. */
  #epoch = 0;
  #putting: Promise<void> | undefined;
  #cancelTimer = (): void => undefined;
  #closed = false;

  constructor(options: StoreUsageOptions) {
    this.#options = options;
    options.replica.sweeps('sweep_usage', SWEEP_MS);
  }

  /** `totals`: undefined while earlier usage is read. Call it once. */
  begin(totals: () => Totals | undefined): void {
    this.#totals = totals;
    this.#cancelTimer = every(this.#options.clock, PUT_MS, () => this.#put());
  }

  async others(account: string, from: string, to: string): Promise<ReadonlyMap<string, TotalsRow[]> | undefined> {
    const { database, replica } = this.#options;
    const { session } = replica;
    if (!session) return undefined;
    const args = [session.no, account, from, to];
    const answer = await this.#questions.run(() =>
      database.call<{ day: string; sums: string }>('usage_of', args, { withinMs: BACKGROUND_MS }),
    );
    if (answer?.kind !== 'rows') return undefined;
    const days = new Map<string, TotalsRow[]>();
    for (const { day, sums } of answer.rows) days.set(day, [...(days.get(day) ?? []), ...rowsOfText(sums)]);
    return days;
  }

  /** Puts what was counted last, if the store answers. To be called when nothing more is counted. */
  async close(): Promise<void> {
    this.#cancelTimer();
    await this.#putting;
    this.#closed = true;
    await this.#put();
  }

  /** Never rejects: what cannot be read or put is tried again. */
  #put(): Promise<void> {
    this.#putting ??= this.#putAll()
      .catch(() => undefined)
      .finally(() => (this.#putting = undefined));
    return this.#putting;
  }

  async #putAll(): Promise<void> {
    const { database, replica } = this.#options;
    const [{ session }, totals] = [replica, this.#totals()];
    if (!session || !totals) return;
    const { no, epoch } = session;
    if (epoch !== this.#epoch) totals.follow((account, day) => this.#changed.add(`${day} ${account}`));
    this.#epoch = epoch;
    if (!this.#closed) await totals.sums.readOn();
    while (this.#changed.size > 0) {
      const next: string[] = [];
      for (const name of this.#changed) {
        this.#changed.delete(name);
        if (next.push(name) === TOGETHER) break;
      }
      const [accounts, days] = [next.map((name) => name.slice(DAY + 1)), next.map((name) => name.slice(0, DAY))];
      const texts = next.map((_, i) => textOfRows([...totals.rowsOf(days[i] ?? '', accounts[i] ?? '', 'keys')]));
      const answer = await database.call('put_usage', [no, epoch, accounts, days, texts], { withinMs: BACKGROUND_MS });
      if (answer.kind === 'rows' && answer.rows.length > 0) continue;
      for (const name of next) this.#changed.add(name);
      return;
    }
  }
}
