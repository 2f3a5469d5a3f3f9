/**
 * What the seat queue and its callers exchange. A seat is one of the sequences that an engine computes at once; one queue serves the
 * seats of all replicas of one model.
 *
 * A request takes a place with `enter`, before anything costly is done for it. It is given no seat until `ready` is called after the
 * last check. The outcome settles exactly once.
 */
import type { RefusalReason } from '../domain/refusal-reasons.js';

/** What a caller waits for: the first token of a stream, or the end of a whole reply. */
export type Awaited = 'first-token' | 'end';

export interface QueueRequest {
  /** The account: fairness is between accounts. */
  readonly account: string;
  /** The caller's end-user label, for fairness inside the account. Never logged. */
  readonly user?: string;
  /** The weight of its class (16, 4 or 1). */
  readonly weight: number;
  /** The weight of the class of its key, which bounds the share of its account; absent: `weight`. */
  readonly ownWeight?: number;
  /** Body bytes that this request holds while it waits. */
  readonly bytes: number;
  /** On the queue's clock, ms; waiting past it settles as refused for `deadline`. */
  readonly deadlineAt?: number;
  /** A gateway set the deadline for this request; otherwise it is the operator's for all requests. */
  readonly urgent?: boolean;
  /** Seats it could use at once; it starts with one. */
  readonly seatsWanted: number;
  /** Absent: `end`. */
  readonly awaits?: Awaited;
  /** On the queue's clock, ms: the client's own timeout. It bounds the wait and does not change the order. */
  readonly wantedUntil?: number;
  /** Equal for requests with the same body: identifies copies of a request, and a retry. */
  readonly bodyDigest?: string;
  /**
   * It uses a lent seat (lent.ts), and may be stopped and begun again: nothing of its answer is sent before its end. Where no seat is lent
   * it waits as every other request does.
   */
  readonly lent?: boolean;
  /** It may be a turn of a session (sessions.ts): a chat of one reply. Absent: it is none. */
  readonly session?: {
    /** The same for all turns of a session, by the account and an id that its client sends; undefined if it sends none. */
    readonly name: string | undefined;
  };
}

/** What is known once a prompt is tokenized. */
export interface SeatNeeds {
  readonly promptTokens: number;
  /** Tokens that its seat has to hold; absent: any seat will do. */
  readonly seatTokens?: number;
  /** Hashes of the prompt's leading chunks, longest last: by them replicas are chosen and sessions are recognised. */
  readonly prefix?: Uint32Array;
}

/** What an engine has to know of the sessions to choose a sequence for a job, as its protocol defines it. */
export interface SequenceClaims {
  /** The session that the job's sequence belongs to from now on. Absent: the request is no turn of a session. */
  readonly session?: number;
  /** The sessions whose seats are kept on its replica. */
  readonly kept: readonly number[];
}

/** Where a waiting request stands (forecast.ts). */
export interface QueuePlace {
  /** How many of the waiting requests are seated before it, as far as is known now; 1,000 stands for 1,000 and more. */
  readonly position: number;
  /** How long it is expected to wait for its seat from now on, ms; undefined before a first request has ended. */
  readonly expectedWaitMs: number | undefined;
}

/** A refusal, with the time after which a retry may be admitted. */
export interface Refused {
  readonly kind: 'refused';
  readonly reason: RefusalReason;
  readonly retryAfterMs: number;
  /** Where that time came from (retry.ts). `none`: a long time, since none could be reserved. Absent: no wait was predicted. */
  readonly retry?: 'predicted' | 'reserved' | 'none';
  /** The place that the request would have now if it might wait. Absent: it is not refused for want of seats. */
  readonly place?: QueuePlace;
}

export type TicketOutcome =
  { readonly kind: 'seated'; readonly lease: Lease } | Refused | { readonly kind: 'cancelled' };

/** A place in the queue. */
export interface Ticket {
  /** The last check passed. From here `ra-queue` counts. Calling it again does nothing. */
  ready(needs: SeatNeeds): void;
  /** Settles once. */
  readonly outcome: Promise<TicketOutcome>;
  /** Its place now; undefined while it does not wait. */
  place(): QueuePlace | undefined;
  /**
   * The caller disconnected or a check failed: the place is freed and the outcome settles as cancelled. After the outcome
   * settled it records that the caller left, and ends the second wait of a request that was given back; else it does nothing.
   */
  cancel(cause?: 'disconnected'): void;
}

export type ReleaseReason = 'done' | 'cancelled' | 'failed' | 'engine-lost' | 'deadline';

/** A grant of seats. The code that awaited the ticket owns it and must end it by `release`, `giveBack` or `nextTurn`. */
export interface Lease {
  /** Seats held now, 0 once ended. */
  readonly seats: () => number;
  /** The replica of the engine whose seats these are, by its index. */
  readonly replica: number;
  /** Milliseconds that it waited in the queue, from `ready` on; those after a `giveBack` are added. */
  readonly waitedMs: number;
  /** The predicted wait when the request entered, ms; undefined if there was no prediction. */
  readonly predictedMs?: number | undefined;
  /** Its seat is lent: it may be recalled at any time. */
  readonly lent: boolean;
  /** Which sequences are kept for sessions, and which one this request continues; undefined: no session is known. */
  readonly claims: SequenceClaims | undefined;
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
  /**
   * Of a lent seat: `stop` is called once when another request needs the seat, which is then taken back. It ends the job and returns
   * undefined if the engine can run another job on the seat at once, or a promise that settles when it can. The holder then calls
   * `giveBack`. If the seat was taken back before this is called, `seats` is 0 and `stop` is not called.
   */
  whenRecalled(stop: () => Promise<void> | undefined): void;
  /** Records that the caller has received the first token of its stream: a later disconnect is no sign of impatience. */
  begun(): void;
  /** Records when its first token came, in ms from when its job was sent, and how many tokens of its prompt were not computed again. */
  prefilled(ms: number, cachedTokens: number): void;
  /** Records the mean time of a token of its reply, ms: a slower replica gets fewer requests. */
  observeTokenMs(ms: number): void;
  /** Ends the lease. Idempotent: the first call counts. `cancelled`: the caller disconnected. */
  release(reason: ReleaseReason): void;
  /**
   * A request whose work has parts ends this part, and waits for a seat for the next one: in the order of its account, as if it had just
   * become ready, so that no request with many parts holds a seat for longer than a part while others wait. Each part counts as a time
   * on a seat. While it waits it is neither refused for its wait nor dropped, since a part of its answer is sent; its deadline ends it.
   * `after`: it begins to wait once this settles, which must not reject. On a lease that has ended it settles as cancelled.
   */
  nextTurn(after?: Promise<void>): Promise<TicketOutcome>;
  /**
   * Its lent seat was recalled: it waits for another one. Or the engine was lost before it started this request, which returns to the head
   * of the queue and keeps its deadline and its waiting time. That may happen as often as the engine has replicas; the next time settles as
   * refused for `engine-lost`. On a lease that has ended it settles as cancelled.
   */
  giveBack(): Promise<TicketOutcome>;
}

export interface QueueConfig {
  /** The longest wait from `enter` to a seat, ms. */
  readonly maxWaitMs: number;
  /** Requests that may wait, per seat. */
  readonly waitingPerSeat: number;
  /** Body bytes that all waiting requests may hold together. */
  readonly waitingBytes: number;
}

export type KeepEnd = 'continued' | 'expired' | 'taken' | 'lost';

export type TurnStart = 'kept' | 'cold' | 'first';

/** Of the sessions of one queue: counts since the start, and what there is now. */
export interface SessionCounts {
  readonly known: number;
  /** Turns by what they began with: `kept`: their session's seat; `cold`: another one; `first`: of no known session. */
  readonly turns: Readonly<Record<TurnStart, number>>;
  /** Keeps by how they ended; `lost`: with the engine, or at a drain. */
  readonly keeps: Readonly<Record<KeepEnd, number>>;
}

/** What there is of lent seats in one queue now, and counts since the start. Times in ms. */
export interface LentCounts {
  /** Seats that stay idle for other requests. */
  readonly headroom: number;
  /** Seats lent, and requests that wait for one. */
  readonly seats: number;
  readonly waiting: number;
  /** Leases of lent seats, by how they ended: `queued`: none did, its request entered the queue as class `batch`. */
  readonly ends: Readonly<Record<LentEnd, number>>;
  /** Seat time of all leases, and that of the recalled ones among it. */
  readonly seatMs: number;
  readonly recalledMs: number;
  /** Those with most seat time of these leases since they were first seen here, most first. */
  readonly accounts: readonly LentAccountCounts[];
}

export type LentEnd = 'ended' | 'recalled' | 'queued';

export interface LentAccountCounts {
  readonly account: string;
  readonly seats: number;
  readonly waiting: number;
  readonly seatMs: number;
}
