import { HeapNode } from '../lib/heap.js';
import type { OrderedList, ListMember } from './ordered-list.js';
import type { QueueRequest, Ticket, TicketOutcome, SeatNeeds } from './seat-queue.js';

/**
 * unready -> ready -> granted -> leased -> over, and from leased back to ready when its engine is lost, as often as there are
 * replicas.
 * granted: a seat is counted for it, the outcome is not delivered yet.
 */
export type Phase = 'unready' | 'ready' | 'granted' | 'leased' | 'over';

/** The functions of the queue that a waiting request calls. */
export interface RequestQueue {
  ready(queued: QueuedRequest): void;
  cancel(queued: QueuedRequest, disconnected: boolean): void;
}

/** One request in the queue, from `enter` until its last outcome. The queue owns all its fields; callers get a Ticket. */
export class QueuedRequest implements Ticket, ListMember<QueuedRequest> {
  list: OrderedList<QueuedRequest> | undefined;
  prev: QueuedRequest | undefined;
  next: QueuedRequest | undefined;
  /** Its node among its user's requests, once it may be seated. */
  readonly turn: HeapNode<QueuedRequest> = new HeapNode<QueuedRequest>(this);
  /** The same where the newest goes first. */
  readonly recent: HeapNode<QueuedRequest> = new HeapNode<QueuedRequest>(this);
  phase: Phase = 'unready';
  /** The predicted wait when it entered, ms; undefined: there was no prediction. */
  predictedMs: number | undefined;
  /** Set by `ready`. */
  needs: SeatNeeds | undefined;
  /** When its present wait began. */
  readyAt = 0;
  /** Its waiting time before that, ms. */
  waitedMs = 0;
  /** `QueueState.breaks` when it entered. */
  breaks = 0;
  /** When its present stay in the queue began, checks included. */
  queuedAt = 0;
  /** The time of its stays before that, ms. */
  inQueueMs = 0;
  /** Seats held now, since when, and seat-milliseconds held before that. */
  seats = 0;
  seatsSince = 0;
  seatMs = 0;
  /** The replica that it was given a seat of, by its index. */
  replica = 0;
  /** How often its engine was lost before it started it, and it returned to the head of the queue. */
  returns = 0;
  /** When it entered, and when it was given its seat. */
  enteredAt = 0;
  grantedAt = 0;
  /** It is a retry at the time that was reserved for it, and goes before its user's other requests. */
  hasReservation = false;
  /** It is admitted to find out whether patience grew. */
  explores = false;
  /** Its caller's patience is recorded. */
  patienceRecorded = false;
  /** Its caller left while it had a seat, before it had what it waited for. */
  leftUnserved = false;
  /** Cancels its timer. */
  disarm: (() => void) | undefined;
  readonly outcome: Promise<TicketOutcome>;
  readonly request: QueueRequest;
  readonly order: number;
  /** The same for requests of the same account and body; undefined: its body is not known. */
  readonly key: string | undefined;
  readonly #queue: RequestQueue;
  #settle!: (outcome: TicketOutcome) => void;

  constructor(queue: RequestQueue, request: QueueRequest, order: number) {
    this.#queue = queue;
    this.request = request;
    this.order = order;
    this.key = keyOf(request);
    this.outcome = this.promise();
  }

  /** It begins to wait, as the policy decided. `now`: ms. */
  admit(
    { predictedMs, hasReservation, explores }: Pick<QueuedRequest, 'predictedMs' | 'hasReservation' | 'explores'>,
    now: number,
  ): void {
    this.predictedMs = predictedMs;
    this.hasReservation = hasReservation;
    this.explores = explores;
    this.queuedAt = this.enteredAt = now;
  }

  /** A seat is counted for it; the outcome is not delivered yet. `now`: ms. */
  grant(now: number): void {
    this.phase = 'granted';
    this.waitedMs += now - this.readyAt;
    this.seatMs = 0;
    this.grantedAt = now;
  }

  /** A promise for the next outcome; made again when the place comes back from a lease. */
  promise(): Promise<TicketOutcome> {
    return new Promise((resolve) => (this.#settle = resolve));
  }

  settle(outcome: TicketOutcome): void {
    this.#settle(outcome);
  }

  ready(needs: SeatNeeds): void {
    this.needs ??= needs;
    this.#queue.ready(this);
  }

  cancel(cause?: 'disconnected'): void {
    this.#queue.cancel(this, cause === 'disconnected');
  }
}

/** The same for requests of the same account and body. */
export function keyOf({ account, bodyDigest }: QueueRequest): string | undefined {
  return bodyDigest === undefined ? undefined : `${bodyDigest} ${account}`;
}
