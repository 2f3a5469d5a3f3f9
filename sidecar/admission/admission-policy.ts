import type { QueueState } from './queue-state.js';
import { lastOfLongest, victims } from './drop.js';
import type { FairQueueConfig } from './fair-queue-options.js';
import { Forecast } from './forecast.js';
import type { Overload } from './overload.js';
import { keyOf, type QueuedRequest } from './queued-request.js';
import { Refusals } from './refusals.js';
import { RetryReservations } from './retry-reservations.js';
import type { OverloadReport, QueueRequest, Refused, RefusalReason } from './seat-queue.js';
import type { AccountClass } from './account-class.js';
import type { Account } from './account.js';

export interface Admitted {
  readonly kind: 'admitted';
  /** Undefined: there is no prediction. */
  readonly predictedMs: number | undefined;
  /** It returned at the time that was reserved for it. */
  readonly hasReservation: boolean;
  /** It is admitted to find out whether patience grew. */
  readonly explores: boolean;
  /** Waiting requests to be refused as `dropped`, to make room in the queue. */
  readonly dropped: readonly QueuedRequest[];
  /** The waiting request of its own class to be refused as `standing`, to make room. */
  readonly replaced: QueuedRequest | undefined;
}

/** Reasons for refusal for which a time to return is reserved if possible. */
const RESERVES: ReadonlySet<RefusalReason> = new Set([
  'full',
  'predicted',
  'standing',
  'patience',
  'hopeless',
  'dropped',
  'wait',
]);

/** Decides which requests are admitted, which waiting ones are dropped for them, and when refused ones should retry. */
export class AdmissionPolicy {
  readonly forecast: Forecast;
  readonly reservations = new RetryReservations();
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

  /** What was learned of overload. */
  overloadReport(): OverloadReport {
    const { stands, load, leftMs } = this.#overload;
    return {
      standing: stands,
      load,
      leftMs,
      patience: {
        'first-token': this.#overload.patienceReport('first-token'),
        end: this.#overload.patienceReport('end'),
      },
      retries: this.reservations.counts,
    };
  }

  /** Judges a newcomer of `account`, which is charged up to `now`. */
  judge(request: QueueRequest, account: Account, now: number): Admitted | Refused {
    const accountClass = account.classFor(request.weight);
    const key = keyOf(request);
    const refuse = (reason: RefusalReason, budgetMs?: number): Refused => {
      return this.refuse(reason, account, accountClass, { key, ...(budgetMs !== undefined && { budgetMs }) });
    };
    if (request.deadlineAt !== undefined && request.deadlineAt <= now) return refuse('deadline');
    const hasReservation = this.reservations.redeem(key, now);
    const predictedMs = this.forecast.canPredict ? this.predict(account, accountClass) : undefined;
    const budgetMs = this.forecast.budgetMs(accountClass, now, request.deadlineAt);
    // A retry may wait as long as this request could.
    if (predictedMs !== undefined && predictedMs > budgetMs) {
      const byCalibration = predictedMs <= budgetMs * accountClass.calibration;
      if (byCalibration && !accountClass.hasSeatable) accountClass.refusedByCalibration();
      return refuse('predicted', budgetMs);
    }
    let explores = false;
    if (predictedMs !== undefined && predictedMs > 0) {
      const named = this.forecast.budgetMs(
        request.awaits === 'first-token' ? undefined : accountClass,
        now,
        request.wantedUntil,
      );
      if (predictedMs > named) return refuse('named', named);
      const longestMs = this.#overload.longestMs(request, account);
      explores = this.#overload.stands && this.#overload.explores();
      if (predictedMs > longestMs && !hasReservation && !explores && !accountClass.newestFirst)
        return refuse('patience', longestMs);
    }
    // A request for which a seat is free waits for its prompt alone, however many were refused before.
    const passes = hasReservation || this.#seatIsFree;
    if (!passes && this.#overload.fresh(request, account, accountClass)) return refuse('standing');
    let replaced: QueuedRequest | undefined;
    if (!passes && accountClass.list.length >= this.#overload.roomOf(accountClass)) {
      account.pressedAt = now;
      [replaced] = accountClass.newestFirst ? lastOfLongest(accountClass, 1) : [];
      if (replaced === undefined) return refuse('standing');
    }
    // A request that gets a free seat at once uses no room.
    const { waiting, seats, free } = this.#state;
    const most = Math.min(this.#config.waitingPerSeat * seats, hasReservation ? Infinity : this.#overload.room);
    const places = waiting + 1 - (most + free) - (replaced === undefined ? 0 : 1);
    // A body above the cap may wait if no other request does, since it would otherwise always be refused. The limit of bodies bounds it.
    const held = this.#state.bytes - (replaced?.request.bytes ?? 0);
    const bytes = waiting === 0 ? 0 : held + request.bytes - this.#config.waitingBytes;
    // At most one is dropped for one that is admitted: those past the bound were admitted when there was more room.
    const lack = { places: Math.min(places, 1), bytes };
    const dropped = victims(
      this.#state.accounts.crowds,
      { account, class: accountClass, bytes: request.bytes },
      lack,
      replaced,
    );
    if (dropped !== undefined) return { kind: 'admitted', predictedMs, hasReservation, explores, dropped, replaced };
    if (places <= 0) return refuse('bytes');
    return refuse(waiting + 1 > this.#config.waitingPerSeat * seats + free ? 'full' : 'standing');
  }

  /** How long a newcomer of `account` and this class would wait (Ŵ), ms; 0 if seats are free for it and all waiting requests. */
  predict(account: Account, accountClass: AccountClass): number {
    return this.#seatIsFree ? 0 : this.forecast.waitMs(account, accountClass, this.#state.seats);
  }

  /** Whether there are seats for a newcomer and for all waiting requests. */
  get #seatIsFree(): boolean {
    return this.#state.free > this.#state.waiting;
  }

  /** A refusal. `budgetMs`: how long the next try may wait. `key`: of its account and body. */
  refuse(
    reason: RefusalReason,
    account: Account,
    accountClass: AccountClass,
    { budgetMs = this.#config.maxWaitMs, key }: { readonly budgetMs?: number; readonly key?: string | undefined } = {},
  ): Refused {
    const retry =
      RESERVES.has(reason) && this.#overload.stands
        ? this.reservations.offer(accountClass, key, this.#state.now)
        : undefined;
    if (retry !== undefined) return this.#refusals.reserved(reason, retry);
    return this.#refusals.estimated(reason, this.#retryMs(reason, account, accountClass, budgetMs));
  }

  #retryMs(reason: RefusalReason, account: Account, accountClass: AccountClass, budgetMs: number): number {
    if (reason === 'drain') return 0;
    const waitMs = this.predict(account, accountClass);
    switch (reason) {
      case 'full':
      case 'bytes':
      case 'standing':
      case 'dropped':
        // There is room once one of the class's own requests is seated.
        return waitMs / (accountClass.waiting + 1);
      default:
        return waitMs - budgetMs;
    }
  }
}
