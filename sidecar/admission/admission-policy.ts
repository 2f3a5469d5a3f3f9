import type { QueueState } from './queue-state.js';
import { lastOfLongest, victims } from './drop.js';
import type { FairQueueConfig } from './fair-queue-options.js';
import { Forecast } from './forecast.js';
import type { Measures } from './next-request.js';
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

/** Reasons for refusal that no longer hold once another request of the class has its seat. */
const LACKS_ROOM: ReadonlySet<RefusalReason> = new Set(['full', 'bytes', 'standing', 'dropped']);

/** Reasons for refusal that say nothing of the queue. */
const NOT_PREDICTED: ReadonlySet<RefusalReason> = new Set(['drain', 'engine-lost', 'no-engine']);

/** What a refusal's time to retry depends on. */
interface Refusing {
  /** How long the next try may wait, ms; absent: the longest wait. */
  readonly budgetMs?: number;
  /** Of its account and body. */
  readonly key?: string | undefined;
  /** Tokens that its seat has to hold; absent: any seat will do, or it is not known. */
  readonly seatTokens?: number | undefined;
}

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

  /** The times from which it follows how far prefix reuse may change the order. */
  get measures(): Measures {
    return { usualMs: this.forecast.usualMs, maxWaitMs: this.#config.maxWaitMs };
  }

  /** What was learned of overload. */
  overloadReport(): OverloadReport {
    const { stands, load, leftMs } = this.#overload;
    return {
      // Without a waiting request there is no overload, however long the running ones hold all seats.
      standing: stands && this.#state.waiting > 0,
      load,
      leftMs,
      patience: {
        'first-token': this.#overload.patienceReport('first-token'),
        end: this.#overload.patienceReport('end'),
      },
      retries: this.reservations.counts,
    };
  }

  /**
   * Judges a newcomer of `account`, which is charged up to `now`. `again`: it is this request, which `outgrew` the free seats and does
   * not count as waiting now.
   */
  judge(request: QueueRequest, account: Account, now: number, again?: QueuedRequest): Admitted | Refused {
    const accountClass = account.classFor(request.weight);
    const key = keyOf(request);
    const seatTokens = again?.needs?.seatTokens;
    const refuse = (reason: RefusalReason, budgetMs?: number): Refused => {
      return this.refuse(reason, account, accountClass, {
        key,
        seatTokens,
        ...(budgetMs !== undefined && { budgetMs }),
      });
    };
    if (request.deadlineAt !== undefined && request.deadlineAt <= now) return refuse('deadline');
    const stands = this.#overload.standsFor(seatTokens ?? 0);
    const hasReservation = again?.hasReservation ?? this.reservations.redeem(key, now);
    const predictedMs = this.forecast.canPredict ? this.predict(account, accountClass, seatTokens) : undefined;
    const budgetMs = this.forecast.budgetMs(accountClass, now, request.deadlineAt);
    // A retry may wait as long as this request could.
    if (predictedMs !== undefined && predictedMs > budgetMs) {
      const byCalibration = predictedMs <= budgetMs * accountClass.calibration;
      if (byCalibration && !accountClass.hasSeatable) accountClass.refusedByCalibration();
      return refuse('predicted', budgetMs);
    }
    let explores = again?.explores ?? false;
    if (predictedMs !== undefined && predictedMs > 0) {
      const named = this.forecast.budgetMs(
        request.awaits === 'first-token' ? undefined : accountClass,
        now,
        request.wantedUntil,
      );
      if (predictedMs > named) return refuse('named', named);
      const longestMs = stands ? this.#overload.longestMs(request, account) : Infinity;
      explores ||= stands && this.#overload.explores();
      if (predictedMs > longestMs && !hasReservation && !explores && !accountClass.newestFirst)
        return refuse('patience', longestMs);
    }
    // A request for which a seat is free waits for its prompt alone, however many were refused before.
    const passes = hasReservation || !stands || this.#seatIsFree(seatTokens);
    if (!passes && this.#overload.fresh(request, account, accountClass)) return refuse('standing');
    let replaced: QueuedRequest | undefined;
    if (!passes && accountClass.list.length >= this.#overload.roomOf(accountClass)) {
      account.pressedAt = now;
      [replaced] = accountClass.newestFirst ? lastOfLongest(accountClass, 1) : [];
      if (replaced === undefined) return refuse('standing');
    }
    // A request that gets a free seat at once uses no room.
    const { waiting, seats } = this.#state;
    const free = again === undefined ? this.#state.free : 0;
    const most = Math.min(this.#config.waitingPerSeat * seats, passes ? Infinity : this.#overload.room);
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

  /**
   * Whether a request is judged again, now that the length of its seat is known: only some of the seats are long enough, and none of
   * them is free. It may have been admitted because a shorter one was, or since all seats together would soon serve it.
   */
  outgrew({ needs }: QueuedRequest): boolean {
    const { replicas } = this.#state;
    const tokens = needs?.seatTokens ?? 0;
    return tokens > 0 && !replicas.holds(tokens) && replicas.all.some(({ contextPerSeat }) => contextPerSeat < tokens);
  }

  /**
   * How long a newcomer of `account` and this class would wait (Ŵ), ms; 0 if a seat is free for it. `seatTokens`: that its seat has
   * to hold; absent: any seat will do.
   */
  predict(account: Account, accountClass: AccountClass, seatTokens = 0): number {
    if (this.#seatIsFree(seatTokens)) return 0;
    const { seats, busy, replicas } = this.#state;
    if (seatTokens === 0) return this.forecast.waitMs(account, accountClass, seats);
    return this.forecast.waitMs(account, accountClass, replicas.seatsFor(seatTokens), busy);
  }

  #seatIsFree(seatTokens = 0): boolean {
    return this.#state.hasSeatForNewcomer && this.#state.replicas.holds(seatTokens);
  }

  /** A request was given a seat and waits no more. */
  seated(queued: QueuedRequest): void {
    const { now } = this.#state;
    const accountClass = this.#state.classOf(queued);
    this.#overload.seated(accountClass);
    accountClass.serviceRate.seated(now, now - queued.readyAt, accountClass.users.head !== undefined);
    this.forecast.waited(queued, accountClass, false);
  }

  /** Refuses a request that waited, or that lost its engine, and waits no more. */
  refuseWaiting(queued: QueuedRequest, reason: RefusalReason): Refused {
    const [account, accountClass] = [this.#state.accountOf(queued), this.#state.classOf(queued)];
    return this.refuse(reason, account, accountClass, { key: queued.key, seatTokens: queued.needs?.seatTokens });
  }

  /** Makes a refusal. */
  refuse(
    reason: RefusalReason,
    account: Account,
    accountClass: AccountClass,
    { budgetMs = this.#config.maxWaitMs, key, seatTokens = 0 }: Refusing = {},
  ): Refused {
    const retry =
      RESERVES.has(reason) && this.#overload.standsFor(seatTokens)
        ? this.reservations.offer(accountClass, key, this.#state.now)
        : undefined;
    if (retry !== undefined) return this.#refusals.reserved(reason, retry);
    if (NOT_PREDICTED.has(reason)) return this.#refusals.soon(reason);
    const waitMs = this.predict(account, accountClass, seatTokens);
    // There is room once one of the class's own requests is seated.
    const afterMs = LACKS_ROOM.has(reason) ? waitMs / (accountClass.waiting + 1) : waitMs - budgetMs;
    return this.#refusals.estimated(reason, afterMs);
  }
}
