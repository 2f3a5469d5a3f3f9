import type { QueueState } from './queue-state.js';
import { victims } from './drop.js';
import type { FairQueueConfig } from './fair-queue-options.js';
import { Forecast } from './forecast.js';
import type { Overload } from './overload.js';
import type { QueuedRequest } from './queued-request.js';
import { Refusals } from './refusals.js';
import type { QueueRequest, Refused, RefusalReason } from './seat-queue.js';
import type { AccountClass } from './account-class.js';
import type { Account } from './account.js';

export interface Admitted {
  readonly kind: 'admitted';
  /** Undefined: nothing could be foretold. */
  readonly predictedMs: number | undefined;
  /** Who is to be refused as `dropped`, to make room. */
  readonly dropped: readonly QueuedRequest[];
}

/** Who is let in, whom that costs the place, and when the refused are to come back. */
export class AdmissionPolicy {
  readonly forecast: Forecast;
  readonly #state: QueueState;
  readonly #config: FairQueueConfig;
  readonly #refusals: Refusals;
  readonly #overload: Overload;

  constructor(state: QueueState, config: FairQueueConfig, random: () => number, overload: Overload) {
    this.#state = state;
    this.#config = config;
    this.#overload = overload;
    this.#refusals = new Refusals(random);
    this.forecast = new Forecast(state.accounts, config.maxWaitMs);
  }

  /** Refusals so far. */
  get refused(): Readonly<Partial<Record<RefusalReason, number>>> {
    return this.#refusals.counts;
  }

  /** Judges a newcomer of `account`, which is charged up to `now`. */
  judge(request: QueueRequest, account: Account, now: number): Admitted | Refused {
    const of = account.classFor(request.weight);
    if (request.deadlineAt !== undefined && request.deadlineAt <= now) return this.refuse('deadline', account, of);
    const predictedMs = this.forecast.knows ? this.predict(account, of) : undefined;
    const budgetMs = this.forecast.budgetMs(of, now, request.deadlineAt);
    // A retry has a time of its own, as long as this one had.
    if (predictedMs !== undefined && predictedMs > budgetMs) {
      const byCalibration = predictedMs <= budgetMs * of.calibration;
      if (byCalibration && !of.inLine) of.refusedByCalibration();
      return this.refuse('predicted', account, of, budgetMs);
    }
    if (predictedMs !== undefined && predictedMs > 0) {
      const named = this.forecast.budgetMs(request.awaits === 'first-token' ? undefined : of, now, request.wantedUntil);
      if (predictedMs > named) return this.refuse('named', account, of, named);
      const worth = this.#overload.worth(request, account, of, predictedMs);
      if (predictedMs > worth.ms) return this.refuse(worth.reason, account, of, worth.ms);
    }
    // Whoever will find a free seat does not wait for one: it only passes through the room.
    const { waiting, seats, free } = this.#state;
    const places = waiting + 1 - (this.#config.waitingPerSeat * seats + free);
    // Alone any body may wait, though it be over the cap: else it would be refused for ever. The limit on bodies bounds it.
    const bytes = waiting === 0 ? 0 : this.#state.bytes + request.bytes - this.#config.waitingBytes;
    // One comes, one goes: those past the bound were let in when there was more room.
    const lack = { places: Math.min(places, 1), bytes };
    const dropped = victims(this.#state.accounts.active, { account, class: of, bytes: request.bytes }, lack);
    if (dropped === undefined) return this.refuse(places > 0 ? 'full' : 'bytes', account, of);
    return { kind: 'admitted', predictedMs, dropped };
  }

  /** How long a newcomer of `account` and this class would wait, ms (Ŵ): not at all where a seat is free for it and all who wait. */
  predict(account: Account, of: AccountClass): number {
    const { waiting, seats, free } = this.#state;
    return free > waiting ? 0 : this.forecast.waitMs(account, of, seats);
  }

  /** A refusal. `budgetMs`: how long the next try may wait. */
  refuse(reason: RefusalReason, account: Account, of: AccountClass, budgetMs = this.#config.maxWaitMs): Refused {
    return this.#refusals.make(reason, this.#retryMs(reason, account, of, budgetMs));
  }

  #retryMs(reason: RefusalReason, account: Account, of: AccountClass, budgetMs: number): number {
    if (reason === 'drain') return 0;
    const waitMs = this.predict(account, of);
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
