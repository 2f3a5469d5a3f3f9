/**
 * The seat queue as other folders see it. One queue per model, for the seats of all replicas of its engine; a seat is one
 * parallel sequence of one of them. Implementations are pure: a clock, a random source and a config go in; no sockets, no promises awaited.
 *
 * A request takes a place with `enter`, before anything costly is done for it. The place cannot be dispatched until
 * `ready` says that the last check passed. The outcome settles exactly once.
 */

import type { ServiceClass } from '../domain/service-class.js';
import type { Awaited } from './patience.js';
import type { Retry } from './returns.js';

/** A refusal, with the wait that would make a retry worthwhile. */
export interface Refused {
  readonly kind: 'refused';
  readonly code: 'capacity_exceeded' | 'draining' | 'timeout';
  /** For logs and metrics: a short constant such as `full`, `wait`, `deadline`. */
  readonly reason: RefusalReason;
  readonly retryAfterMs: number;
  /** That time was reserved, or it is a long one since none could be (returns.ts). Absent: it is the predicted wait. */
  readonly retry?: Retry['kind'];
}

/**
 * standing: more comes than the seats serve, and they stay busy with less waiting. patience: callers like this one have left
 * by then. hopeless: it waited, and its caller is not there, or hardly ever, by the time that it would be done. named: the
 * wait would pass the time that the caller gives. full, bytes: there is no room to wait. predicted: the wait would be too long. dropped: it waited, and made room for one
 * of an account with less waiting. wait: no seat came within the longest wait. deadline: its own time was over.
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
  | 'engine-lost';

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
  /** On the queue's clock, ms: the caller says that it is gone then. It bounds the wait and orders nothing. */
  readonly wantedUntil?: number;
  /** Equal for requests with the same body: by it a hedge is known, and a request that comes back. */
  readonly fingerprint?: string;
}

/** What is known once a prompt is tokenized. */
export interface SeatNeeds {
  readonly promptTokens: number;
  readonly maxTokens: number;
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
   * settled it does nothing, except that it ends the second wait of a request that was given back.
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
  /** Milliseconds from `ready` to the grant. */
  readonly waitedMs: number;
  /** What the wait was taken to be when the request entered, ms; undefined: there was no prediction. */
  readonly predictedMs?: number | undefined;
  /** Takes a further seat of the same replica if one is free and no request with a better claim waits. */
  takeSeat(): boolean;
  /** Gives one seat back; the last one only goes with `release`. */
  freeSeat(): void;
  /**
   * From now on and while this lease holds more than one seat, `fn` is called when another begins to wait: a seat should then
   * be given back as soon as that can be. It is not called again before one was. No request waits while a lease grows, so a
   * call right after that misses none.
   */
  whenWanted(fn: () => void): void;
  /** The caller has the first token of its stream: from now on it shows no patience by leaving. */
  begun(): void;
  /** Ends the lease. Idempotent: the first call counts. `cancelled`: the caller left. */
  release(reason: ReleaseReason): void;
  /**
   * The engine was lost before it started this request: back to the head of the line, with its deadline and its time
   * already waited kept. As often in a request's life as the engine has replicas; once more settles as refused `engine-lost`, which is answered as
   * a lost engine (502), not by the refusal's code. On a lease that has ended it settles as cancelled.
   */
  giveBack(): Promise<TicketOutcome>;
}

export interface QueueSnapshot {
  readonly seats: number;
  readonly busy: number;
  readonly waiting: number;
  /** The same by class; an account may have requests of several. */
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
  /** What one of these requests takes; null: none has ended. */
  readonly holdMs: number | null;
  /** What their predictions are multiplied by. */
  readonly calibration: number;
  /** How long one more of them would wait. */
  readonly predictedWaitMs: number;
}

/** One account as operators see it. Times in ms. */
export interface AccountReport {
  readonly account: string;
  /** Of the class that it is ranked by: the heaviest that has a request to seat, else that waits or runs, or last did. */
  readonly weight: number;
  readonly waiting: number;
  /** Seats held. */
  readonly running: number;
  /** Its rank: seat time over weight, the lowest goes next (account.ts). */
  readonly virtualMs: number;
  /** Seat time since it was first seen here. */
  readonly seatMs: number;
  /** What one of its requests takes; null: none has ended. */
  readonly holdMs: number | null;
  /** The same of the class that it is ranked by. */
  readonly calibration: number;
  readonly predictedWaitMs: number;
  /** The classes that it ever used, heaviest first. */
  readonly classes: readonly ClassReport[];
}

/** The times by which 10, 50 and 90 of 100 callers have left, ms; null: fewer leave, as far as is known. */
export interface PatienceReport {
  readonly p10: number | null;
  readonly p50: number | null;
  readonly p90: number | null;
}

/** What the queue learned of overload (overload.ts). */
export interface OverloadReport {
  /** More comes than the seats can serve, and has for some time. */
  readonly standing: boolean;
  /** Requests that come for each that is seated, lately. */
  readonly load: number;
  /** Seat time of callers who left before they had what they waited for, since the start, ms. */
  readonly leftMs: number;
  /** How long callers stay, all accounts alike, by what they wait for. */
  readonly patience: Readonly<Record<Awaited, PatienceReport>>;
  /** Retry-After since the start: times reserved, refusals for which none could be, requests that came at their time. */
  readonly retries: { readonly reserved: number; readonly none: number; readonly kept: number };
}

/** One replica's seats. */
export interface ReplicaReport {
  /** As it reported them last. */
  readonly seats: number;
  readonly busy: number;
  /** Whether it takes jobs. */
  readonly up: boolean;
}

/** The queue in full. */
export interface QueueReport extends Omit<QueueSnapshot, 'accounts'> {
  readonly replicas: readonly ReplicaReport[];
  /** Jain's index of weighted seat time in the last minute, over accounts that always had a request to seat; null: fewer than two. */
  readonly fairness: number | null;
  readonly overload: OverloadReport;
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

/** How full a queue is now: properties that are read where the queue keeps them, so that reading makes nothing. */
export interface QueueLoad {
  readonly seats: number;
  readonly busy: number;
  readonly waiting: number;
  readonly replicas: { readonly all: readonly ReplicaReport[] };
}

/** What routes, metrics and pages use of a model's queue; tickets and leases have their own ways into it. */
export interface SeatQueue {
  /** Takes a place, synchronously. Never throws. */
  enter(request: QueueRequest): Ticket | Refused;
  /**
   * A replica of the engine went away: nothing is dispatched to it until `resume`. Waiting requests keep their places and
   * timers. `replica`: its index; absent: the only one.
   */
  pause(replica?: number): void;
  /** A replica is there with this many seats. */
  resume(seats: number, replica?: number): void;
  /** Refuses all waiting requests and all that arrive from now on; leases continue. */
  drain(): void;
  snapshot(): QueueSnapshot;
  /** The same object for as long as the queue lives. */
  readonly load: QueueLoad;
  /** Names the `most` accounts that held seats longest. Costlier than a snapshot: for pages, not for decisions. */
  report(most: number): QueueReport;
}
