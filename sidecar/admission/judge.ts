/** Decides which requests are admitted, which waiting ones are dropped for them, and when refused ones should retry. */
import { REFUSALS, type RefusalReason } from '../domain/refusal-reasons.js';
import type { Account, AccountClass } from './accounts.js';
import type { Forecast } from './forecast.js';
import { lastOfLongest, victims } from './make-room.js';
import type { Overload } from './overload.js';
import { bodyKeyOf, type QueuedRequest } from './request.js';
import { MAX_RETRY_MS, retryAfter, RetryReservations } from './retry.js';
import type { Sessions } from './sessions.js';
import type { QueueState } from './state.js';
import type { QueuePlace, QueueConfig, QueueRequest, Refused } from './types.js';

export interface Admitted {
  readonly kind: 'admitted';
  /** Undefined if there is no prediction. */
  readonly predictedMs: number | undefined;
  /** It returned at the time that was reserved for it, or its account is owed a seat. */
  readonly hasReservation: boolean;
  /** It is admitted to find out whether patience grew. */
  readonly explores: boolean;
  /** Waiting requests to be refused as `dropped`, to make room in the queue. */
  readonly dropped: readonly QueuedRequest[];
  /** The waiting request of its own class to be refused as `standing`, to make room. */
  readonly replaced: QueuedRequest | undefined;
}

/** What a refusal's time to retry depends on, besides its account and class. */
interface Refusing {
  /** How long the next try may wait, ms; absent: the longest wait. */
  readonly budgetMs?: number;
  /** Of its account and body. */
  readonly bodyKey?: string | undefined;
  /** Tokens that its seat has to hold; absent: any seat will do, or it is not known. */
  readonly seatTokens?: number;
  /** Absent: its place is not told. */
  readonly request?: QueueRequest;
}

/** The parts of the queue that its judgements depend on. */
interface JudgedQueue {
  readonly state: QueueState;
  readonly config: QueueConfig;
  readonly random: () => number;
  readonly overload: Overload;
  readonly forecast: Forecast;
  readonly sessions: Sessions;
}

/** A class of which no more requests than this arrive for each that is seated may have none waiting when a seat becomes free. */
const FEW_ARRIVALS = 3;

export class Judge {
  readonly reservations = new RetryReservations();
  readonly #of: JudgedQueue;
  readonly #refused: Partial<Record<RefusalReason, number>> = {};

  constructor(queue: JudgedQueue) {
    this.#of = queue;
  }

  get refused(): Readonly<Partial<Record<RefusalReason, number>>> {
    return { ...this.#refused };
  }

  /**
   * Judges a newcomer of `account`, step by step. `claims`: a kept seat may be its own. `again`: it is this request, which `outgrew` the
   * free seats or has no kept seat, and does not count as waiting now.
   */
  judge(request: QueueRequest, account: Account, claims: boolean, again?: QueuedRequest): Admitted | Refused {
    const { now, waiting, seats } = this.#of.state;
    const accountClass = account.classFor(request.weight);
    const bodyKey = bodyKeyOf(request);
    const seatTokens = again?.seatTokens ?? 0;
    const refuse = (reason: RefusalReason, budgetMs = this.#of.config.maxWaitMs): Refused =>
      this.refuse(reason, account, accountClass, { bodyKey, seatTokens, budgetMs, request });

    if (request.deadlineAt !== undefined && request.deadlineAt <= now) return refuse('deadline');
    const stands = this.#of.overload.standsFor(seatTokens);
    const hasReservation =
      again?.hasReservation ?? (this.reservations.redeem(bodyKey, now) || this.#isOwedSeat(account, accountClass));

    // The longest wait and the deadline. A retry may wait as long as this request could. One at its reserved time, or owed a seat, takes a
    // kept seat in the end (sessions.ts), whatever is predicted.
    const isSeatFree = claims || this.#isSeatFree(account, seatTokens);
    const wait = (): number => (isSeatFree ? 0 : this.predict(account, accountClass, seatTokens));
    const isPromised = hasReservation && this.#of.sessions.keepsSeats;
    const predictedMs = this.#of.forecast.canPredict && !isPromised ? wait() : undefined;
    const budgetMs = this.#of.forecast.budgetMs(accountClass, request.deadlineAt);
    if (predictedMs !== undefined && predictedMs > budgetMs) {
      const byCalibration = predictedMs <= budgetMs * accountClass.calibration;
      if (byCalibration && !accountClass.hasSeatable) accountClass.refusedByCalibration();
      return refuse(this.#of.sessions.keepsSeats ? 'sessions' : 'predicted', budgetMs);
    }

    let explores = again?.explores ?? false;
    if (predictedMs !== undefined && predictedMs > 0) {
      // The client's own timeout.
      const untilEnd = request.awaits === 'first-token' ? undefined : accountClass;
      const wantedMs = this.#of.forecast.budgetMs(untilEnd, request.wantedUntil);
      if (predictedMs > wantedMs) return refuse('named', wantedMs);

      // Overload rules "longestMs" and "explores".
      const longestMs = stands ? this.#of.overload.longestMs(request, account) : Infinity;
      explores ||= stands && this.#of.overload.explores();
      if (predictedMs > longestMs && !hasReservation && !explores && !accountClass.newestFirst)
        return refuse('patience', longestMs);
    }

    // A request for which a seat is free waits for its prompt alone, however many were refused before.
    const isExempt = hasReservation || !stands || isSeatFree;

    // Overload rule "isFresh".
    if (!isExempt && this.#of.overload.isFresh(request, account, accountClass)) return refuse('standing');

    // Overload rule "roomOf".
    let replaced: QueuedRequest | undefined;
    if (!isExempt && accountClass.list.length >= this.#of.overload.roomOf(accountClass)) {
      account.pressedAt = now;
      [replaced] = accountClass.newestFirst ? lastOfLongest(accountClass, 1) : [];
      if (replaced === undefined) return refuse('standing');
    }

    // Places, of which overload rule "totalRoom" leaves fewer. A request that gets a free seat at once takes none.
    const ownSeats = claims ? this.#of.state.claiming + 1 : this.#of.state.claiming;
    const freeSeats = again === undefined ? this.#of.state.replicas.freeSeats + ownSeats : 0;
    const places = this.#of.config.waitingPerSeat * seats;
    const allowed = Math.min(places, isExempt ? Infinity : this.#of.overload.totalRoom) + freeSeats;
    const missing = waiting + 1 - allowed - (replaced === undefined ? 0 : 1);

    // A body above the cap may wait if no other request does, since it would otherwise always be refused. The limit of bodies bounds it.
    const held = this.#of.state.bytes - (replaced?.request.bytes ?? 0);
    const bytes = waiting === 0 ? 0 : held + request.bytes - this.#of.config.waitingBytes;

    // At most one is dropped for one that is admitted: those past the bound were admitted when there was more room.
    const shortage = { places: Math.min(missing, 1), bytes };
    const newcomer = { account, class: accountClass, bytes: request.bytes };
    const dropped = victims(this.#of.state.byPlaces, newcomer, shortage, replaced);
    if (dropped !== undefined) return { kind: 'admitted', predictedMs, hasReservation, explores, dropped, replaced };
    if (missing <= 0) return refuse('bytes');
    return refuse(waiting + 1 > places + freeSeats ? 'full' : 'standing');
  }

  /**
   * Whether a request is judged again, now that the length of its seat is known: only some of the seats are long enough, and none of
   * them is free. It may have been admitted because a shorter one was, or since all seats together would soon serve it.
   */
  outgrew({ seatTokens }: QueuedRequest): boolean {
    const { replicas } = this.#of.state;
    if (seatTokens === 0 || replicas.hasFree(seatTokens)) return false;
    return replicas.all.some(({ contextPerSeat }) => contextPerSeat < seatTokens);
  }

  /**
   * How long a newcomer of `account` and this class would wait (Ŵ), ms; 0 if a seat is free for it. `seatTokens`: the tokens that its seat
   * has to hold; 0: any seat will do.
   */
  predict(account: Account, accountClass: AccountClass, seatTokens = 0): number {
    if (this.#isSeatFree(account, seatTokens)) return 0;
    const { seats, busy, replicas } = this.#of.state;
    if (seatTokens === 0) return this.#of.forecast.waitMs(account, accountClass, seats);
    return this.#of.forecast.waitMs(account, accountClass, replicas.seatsFor(seatTokens), busy);
  }

  /** The place of a request; undefined if it does not wait. */
  place(queued: QueuedRequest): QueuePlace | undefined {
    if (queued.phase !== 'unready' && queued.phase !== 'ready') return undefined;
    return this.#of.forecast.place(this.#of.state.accountOf(queued), this.#of.state.classOf(queued), queued);
  }

  /** Refuses a request that waited, or that lost its engine, and waits no more. */
  refuseWaiting(queued: QueuedRequest, reason: RefusalReason): Refused {
    const account = this.#of.state.accountOf(queued);
    return this.refuse(reason, account, account.classFor(queued.request.weight), queued);
  }

  refuse(
    reason: RefusalReason,
    account: Account,
    accountClass: AccountClass,
    { budgetMs = this.#of.config.maxWaitMs, bodyKey, seatTokens = 0, request }: Refusing = {},
  ): Refused {
    this.#refused[reason] = (this.#refused[reason] ?? 0) + 1;
    const row = REFUSALS[reason];
    const newest = request && { request, order: Infinity, hasReservation: false, continues: false, seatTokens };
    const place = newest &&
      row.code === 'capacity_exceeded' && { place: this.#of.forecast.place(account, accountClass, newest) };
    const isNewSession = reason === 'sessions' && request?.session !== undefined;
    const from = account.kept > 0 ? this.#of.sessions.firstEndOf(account) : 0;
    const beside = isNewSession && { everyMs: this.#of.overload.fairEveryMs(account), from };
    const reserves = row.reserves && (isNewSession || this.#of.overload.standsFor(seatTokens));
    const reserved = reserves ? this.reservations.offer(accountClass, bodyKey, this.#of.state.now, beside) : undefined;
    if (reserved) return { kind: 'refused', reason, retryAfterMs: reserved.ms, retry: reserved.kind, ...place };
    if (row.retryAfter === 'soon') return { kind: 'refused', reason, retryAfterMs: retryAfter(0, this.#of.random()) };
    const waitMs = this.predict(account, accountClass, seatTokens);
    const afterMs = row.retryAfter === 'place' ? waitMs / (accountClass.waiting + 1) : waitMs - budgetMs;
    const retryAfterMs = retryAfter(afterMs, this.#of.random());
    return { kind: 'refused', reason, retryAfterMs, retry: 'predicted', ...place };
  }

  /** Refuses a request of lent seats (lent.ts), which would have this place. */
  refuseLent(reason: RefusalReason, place: QueuePlace): Refused {
    this.#refused[reason] = (this.#refused[reason] ?? 0) + 1;
    const { retryAfter: basis, code } = REFUSALS[reason];
    const waitMs = place.expectedWaitMs ?? 0;
    const afterMs = basis === 'wait' ? waitMs - this.#of.config.maxWaitMs : basis === 'place' ? waitMs : 0;
    const retryAfterMs = retryAfter(afterMs, this.#of.random());
    const told = code === 'capacity_exceeded' && { place };
    return { kind: 'refused', reason, retryAfterMs, ...(basis !== 'soon' && { retry: 'predicted' }), ...told };
  }

  /**
   * Whether a newcomer is promised a seat without a reservation, while seats are kept and so few requests of its class come that others
   * would have each seat that becomes free before one of them returns: its account has fewer than its share, or no more than that and the
   * class was given less than half of it, with those of the class that wait, of which each counts as given within the longest Retry-After.
   */
  #isOwedSeat(account: Account, { load, demand, hold, waiting }: AccountClass): boolean {
    const { state, sessions, forecast } = this.#of;
    const share = sessions.keepsSeats && load <= FEW_ARRIVALS ? state.shareOf(account) * state.seats : 0;
    const seats = account.running + account.kept;
    if (seats + account.waiting + 1 <= share) return true;
    const given = (hold.meanMs ?? forecast.usualMs) * (1 / demand.everyMs + waiting / MAX_RETRY_MS);
    return seats <= Math.max(1, share) && given < share / 2;
  }

  /** Whether a seat is free for a newcomer of this account, or kept for another one's session from which it takes it. */
  #isSeatFree(account: Account, seatTokens: number): boolean {
    if (this.#of.state.hasSeatForNewcomer && this.#of.state.replicas.hasFree(seatTokens)) return true;
    return this.#of.sessions.takeable(account, seatTokens, account.waiting) !== undefined;
  }
}
