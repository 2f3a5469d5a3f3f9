import type { Books } from './queue-state.js';
import { victims } from './drop.js';
import type { FairQueueConfig } from './fair-queue-options.js';
import { Forecast } from './forecast.js';
import type { Place } from './queued-request.js';
import { Refusals } from './refusals.js';
import type { Entry, Refused, RefusalReason } from './seat-queue.js';
import type { TenantClass } from './account-class.js';
import type { Tenant } from './account.js';

export interface Admitted {
  readonly kind: 'admitted';
  /** Undefined: nothing could be foretold. */
  readonly predictedMs: number | undefined;
  /** Who is to be refused as `dropped`, to make room. */
  readonly dropped: readonly Place[];
}

/** Who is let in, whom that costs the place, and when the refused are to come back. */
export class Gate {
  readonly forecast: Forecast;
  readonly #books: Books;
  readonly #config: FairQueueConfig;
  readonly #refusals: Refusals;

  constructor(books: Books, config: FairQueueConfig, random: () => number) {
    this.#books = books;
    this.#config = config;
    this.#refusals = new Refusals(random);
    this.forecast = new Forecast(books.tenants, config.maxWaitMs);
  }

  /** Refusals so far. */
  get refused(): Readonly<Partial<Record<RefusalReason, number>>> {
    return this.#refusals.counts;
  }

  /** Judges a newcomer of `tenant`, which is charged up to `now`. */
  judge(entry: Entry, tenant: Tenant, now: number): Admitted | Refused {
    const of = tenant.classFor(entry.weight);
    if (entry.deadlineAt !== undefined && entry.deadlineAt <= now) return this.refuse('deadline', tenant, of);
    const predictedMs = this.forecast.knows ? this.predict(tenant, of) : undefined;
    const budgetMs = this.forecast.budgetMs(of, now, entry.deadlineAt);
    // A retry has a time of its own, as long as this one had.
    if (predictedMs !== undefined && predictedMs > budgetMs) {
      const byCalibration = predictedMs <= budgetMs * of.calibration;
      if (byCalibration && !of.inLine) of.refusedByCalibration();
      return this.refuse('predicted', tenant, of, budgetMs);
    }
    // Whoever will find a free seat does not wait for one: it only passes through the room.
    const { waiting, seats, free } = this.#books;
    const places = waiting + 1 - (this.#config.waitingPerSeat * seats + free);
    // Alone any body may wait, though it be over the cap: else it would be refused for ever. The limit on bodies bounds it.
    const bytes = waiting === 0 ? 0 : this.#books.bytes + entry.bytes - this.#config.waitingBytes;
    // One comes, one goes: those past the bound were let in when there was more room.
    const lack = { places: Math.min(places, 1), bytes };
    const dropped = victims(this.#books.tenants.active, { tenant, class: of, bytes: entry.bytes }, lack);
    if (dropped === undefined) return this.refuse(places > 0 ? 'full' : 'bytes', tenant, of);
    return { kind: 'admitted', predictedMs, dropped };
  }

  /** How long a newcomer of `tenant` and this class would wait, ms (Ŵ): not at all where a seat is free for it and all who wait. */
  predict(tenant: Tenant, of: TenantClass): number {
    const { waiting, seats, free } = this.#books;
    return free > waiting ? 0 : this.forecast.waitMs(tenant, of, seats);
  }

  /** A refusal. `budgetMs`: how long the next try may wait. */
  refuse(reason: RefusalReason, tenant: Tenant, of: TenantClass, budgetMs = this.#config.maxWaitMs): Refused {
    return this.#refusals.make(reason, this.#retryMs(reason, tenant, of, budgetMs));
  }

  #retryMs(reason: RefusalReason, tenant: Tenant, of: TenantClass, budgetMs: number): number {
    if (reason === 'drain') return 0;
    const waitMs = this.predict(tenant, of);
    switch (reason) {
      case 'full':
      case 'bytes':
      case 'dropped':
        // The class has its share of the room: there is a place once one of its own is seated.
        return waitMs / (of.waiting + 1);
      default:
        return waitMs - budgetMs;
    }
  }
}
