/**
 * The seat queue as other folders see it. One queue per model, for the seats of all replicas of its engine; a seat is one
 * parallel sequence of one of them. Implementations are pure: a clock, a random source and a config go in; no sockets, no promises awaited.
 *
 * A request takes a place with `enter`, before anything costly is done for it. It is given no seat until `ready` is called
 * after the last check. The outcome settles exactly once.
 */

import type { ServiceClass } from '../domain/service-class.js';
import type { Awaited } from './patience.js';
import type { Replica } from './replica-seats.js';
import type { Retry } from './retry-reservations.js';

/** A refusal, with the wait that would make a retry worthwhile. */
export interface Refused {
  readonly kind: 'refused';
  readonly code: 'capacity_exceeded' | 'draining' | 'timeout';
  /** For logs and metrics: a short constant such as `full`, `wait`, `deadline`. */
  readonly reason: RefusalReason;
  readonly retryAfterMs: number;
  /** Where that time came from (refusals.ts). `none`: it is a long one, since none could be reserved. Absent: it was not predicted. */
  readonly retry?: Retry['kind'] | 'predicted';
}

/**
 * standing: more requests arrive than the seats can serve, and they stay busy with fewer waiting. patience: the wait would be
 * longer than callers like this one stay. hopeless: it waited so long that a newer request is more likely to be still awaited when
 * it is answered, or as long as its client waits. named: the wait would exceed the client's own timeout. full, bytes: there is no
 * room to wait. predicted: the wait would be too long. dropped: it waited, and made room for a request of an account with fewer
 * waiting, or with none and less seat time. wait: it got no seat within the longest wait. deadline: its deadline passed. no-engine: the
 * model could not be loaded, and is not loaded again without a new request.
 */
export type RefusalReason =
  | 'full'
  | 'bytes'
  | 'predicted'
  | 'standing'
  | 'patience'
  | 'named'
  | 'hopeless'
  | 'dropped'
  | 'wait'
  | 'deadline'
  | 'drain'
  | 'engine-lost'
  | 'no-engine';

export interface QueueRequest {
  /** The account: fairness is between accounts. */
  readonly account: string;
  /** The caller's end-user label, for fairness inside the account. Never logged. */
  readonly user?: string;
  /** The share of this account's class (16, 4 or 1). */
  readonly weight: number;
  /** Body bytes that this request holds while it waits. */
  readonly bytes: number;
  /** On the queue's clock, ms; waiting past it settles as refused `timeout`. */
  readonly deadlineAt?: number;
  /** The deadline is this request's own, named by a gateway, and not the operator's for all. */
  readonly urgent?: boolean;
  /** Seats it could use at once; it starts with one. */
  readonly seatsWanted: number;
  /** What its caller waits for: the first token of a stream, or the end of a whole reply, as where it is absent. */
  readonly awaits?: Awaited;
  /** On the queue's clock, ms: the client's own timeout. It bounds the wait and does not change the order. */
  readonly wantedUntil?: number;
  /** Equal for requests with the same body: identifies copies of a request, and a retry. */
  readonly bodyDigest?: string;
}

/** What is known once a prompt is tokenized. */
export interface SeatNeeds {
  readonly promptTokens: number;
  /** Tokens that its seat has to hold; absent: any seat will do. */
  readonly seatTokens?: number;
  /** Hashes of the prompt's leading chunks, longest last, for prefix affinity. */
  readonly prefix?: Uint32Array;
}

export type TicketOutcome =
  { readonly kind: 'seated'; readonly lease: Lease } | Refused | { readonly kind: 'cancelled' };

export interface Ticket {
  /** The last check passed. From here `ra-queue` counts. Calling it again does nothing. */
  ready(needs: SeatNeeds): void;
  /** Settles once. */
  readonly outcome: Promise<TicketOutcome>;
  /**
   * The caller disconnected or a check failed: the place is freed and the outcome settles as cancelled. After the outcome
   * settled it records that the caller left, and ends the second wait of a request that was given back; else it does nothing.
   */
  cancel(cause?: 'disconnected'): void;
}

export type ReleaseReason = 'done' | 'cancelled' | 'failed' | 'engine-lost' | 'deadline';

/** A grant of seats. The code that awaited the ticket owns it and must end it by `release` or `giveBack`. */
export interface Lease {
  /** Seats held now, 0 once ended. */
  readonly seats: number;
  /** The replica of the engine whose seats these are, by its index. */
  readonly replica: number;
  /** Milliseconds that it waited in the queue, from `ready` on; those after a `giveBack` are added. */
  readonly waitedMs: number;
  /** The predicted wait when the request entered, ms; undefined: there was no prediction. */
  readonly predictedMs?: number | undefined;
  /** Takes a further seat of the same replica if one is free and no waiting request could use it. */
  takeSeat(): boolean;
  /** Returns one seat; the last one is returned by `release` only. */
  freeSeat(): void;
  /**
   * From now on and while this lease holds more than one seat, `fn` is called when another request begins to wait: a seat should
   * then be returned as soon as possible. It is called again only after one was returned. No request waits while a lease
   * grows, so a call right after that misses none.
   */
  whenWanted(fn: () => void): void;
  /** Records that the caller has received the first token of its stream: a later disconnect is no sign of impatience. */
  begun(): void;
  /** Records the mean time of a token of its reply, ms: a slower replica gets fewer requests. */
  observeTokenMs(ms: number): void;
  /** Ends the lease. Idempotent: the first call counts. `cancelled`: the caller disconnected. */
  release(reason: ReleaseReason): void;
  /**
   * The engine was lost before it started this request, which returns to the head of the queue and keeps its deadline and its
   * waiting time. That may happen as often as the engine has replicas; the next time settles as refused `engine-lost`, which is
   * answered as a lost engine (502) and not by the refusal's code. On a lease that has ended it settles as cancelled.
   */
  giveBack(): Promise<TicketOutcome>;
}

export interface QueueSnapshot {
  readonly seats: number;
  readonly busy: number;
  readonly waiting: number;
  /** The same by class. An account may have requests of several classes. */
  readonly waitingBy: Readonly<Record<ServiceClass, number>>;
  readonly waitingBytes: number;
  readonly paused: boolean;
  readonly accounts: readonly { readonly account: string; readonly waiting: number; readonly running: number }[];
  readonly refused: Readonly<Partial<Record<RefusalReason, number>>>;
  /** Leases ended, by reason. */
  readonly released: Readonly<Partial<Record<ReleaseReason | 'given-back', number>>>;
}

/** One account's requests of one class as operators see them. Times in ms. */
export interface ClassReport {
  readonly class: ServiceClass;
  readonly waiting: number;
  /** Seats held. */
  readonly running: number;
  /** Mean seat time of one of these requests; null: none has ended. */
  readonly holdMs: number | null;
  /** The factor that corrects their predictions. */
  readonly calibration: number;
  /** How long one more of them would wait. */
  readonly predictedWaitMs: number;
}

/** One account as operators see it. Times in ms. */
export interface AccountReport {
  readonly account: string;
  /** Of the class that determines its rank: the heaviest with a request to seat, else with one that waits or runs, or last did. */
  readonly weight: number;
  readonly waiting: number;
  /** Seats held. */
  readonly running: number;
  /** Its rank: seat time over weight, the lowest goes next (account.ts). */
  readonly virtualMs: number;
  /** Seat time since it was first seen here. */
  readonly seatMs: number;
  /** Mean seat time of one of its requests; null: none has ended. */
  readonly holdMs: number | null;
  /** The same of the class that determines its rank. */
  readonly calibration: number;
  readonly predictedWaitMs: number;
  /** The classes that it ever used, heaviest first. */
  readonly classes: readonly ClassReport[];
}

/** The times by which 10, 50 and 90 of 100 callers have left, ms; null: fewer are known to leave. */
export interface PatienceReport {
  readonly p10: number | null;
  readonly p50: number | null;
  readonly p90: number | null;
}

/** What the queue learned of overload (overload.ts). */
export interface OverloadReport {
  /** Requests wait, and for some time more have arrived than the seats, or those that are long enough for them, can serve. */
  readonly standing: boolean;
  /** Recent arrivals for each request that is seated. */
  readonly load: number;
  /** Seat time of callers who left before they had what they waited for, since the start, ms. */
  readonly leftMs: number;
  /** How long callers stay, by what they wait for. Each account counts alike. */
  readonly patience: Readonly<Record<Awaited, PatienceReport>>;
  /** Since the start: times that were reserved, refusals for which none could be, and requests that returned at their time. */
  readonly retries: { readonly reserved: number; readonly none: number; readonly kept: number };
}

/** One replica. `tokenTimeRatio`: null where it is not known. */
export interface ReplicaReport extends Pick<Replica, 'seats' | 'busy' | 'up'> {
  readonly tokenTimeRatio: number | null;
}

/** The queue in full. */
export interface QueueReport extends Omit<QueueSnapshot, 'accounts'> {
  readonly replicas: readonly ReplicaReport[];
  /** Jain's index of weighted seat time in the last minute, over accounts that always had a request to seat; null: fewer than two. */
  readonly fairness: number | null;
  readonly overload: OverloadReport;
  /** The virtual time of the account that is served next, ms; null: none has a request to seat. */
  readonly nextVirtualMs: number | null;
  /** Those with the most seat time, most first. */
  readonly accounts: readonly AccountReport[];
  /** All others that are remembered, together. */
  readonly others: {
    readonly accounts: number;
    readonly waiting: number;
    readonly running: number;
    readonly seatMs: number;
  };
}

/** The present load of a queue. Its properties read the queue's own state, so that reading them allocates nothing. */
export interface QueueLoad {
  readonly seats: number;
  readonly busy: number;
  readonly waiting: number;
  readonly replicas: { readonly all: readonly Replica[] };
}

/** A model's queue as routes, metrics and pages use it. */
export interface SeatQueue {
  /** Takes a place, synchronously. Never throws. */
  enter(request: QueueRequest): Ticket | Refused;
  /**
   * A replica of the engine became unavailable: none of its seats is granted until `resume`. Waiting requests keep their
   * places and timers. `replica`: its index; absent: the only one.
   */
  pause(replica?: number): void;
  /** A replica is available with this many seats. */
  resume(seats: number, replica?: number): void;
  /** No replica is ready or will be without a new request: refuses all waiting requests. */
  refuseUnserved(): void;
  /** Refuses all waiting requests and all that arrive from now on; leases continue. */
  drain(): void;
  snapshot(): QueueSnapshot;
  /** The same object for as long as the queue lives. */
  readonly load: QueueLoad;
  /** Names the `most` accounts with the most seat time. More expensive than a snapshot: for pages, not for decisions. */
  report(most: number): QueueReport;
}
