import { HeapNode } from '../lib/heap.js';
import type { OrderedList, ListMember } from './ordered-list.js';
import type { QueueRequest, Ticket, TicketOutcome, Work } from './seat-queue.js';

/**
 * unready -> ready -> granted -> leased -> over, and from leased once back to ready.
 * granted: a seat is counted for it but nobody was told yet.
 */
export type Phase = 'unready' | 'ready' | 'granted' | 'leased' | 'over';

/** What a place asks of the queue that it stands in. */
export interface RequestQueue {
  ready(queued: QueuedRequest): void;
  cancel(queued: QueuedRequest, left: boolean): void;
}

/** One request in the queue, from `enter` until its last outcome. The queue owns all its fields; callers see a Ticket. */
export class QueuedRequest implements Ticket, ListMember<QueuedRequest> {
  list: OrderedList<QueuedRequest> | undefined;
  prev: QueuedRequest | undefined;
  next: QueuedRequest | undefined;
  /** Where it stands among its user's, once it may be seated. */
  readonly turn: HeapNode<QueuedRequest> = new HeapNode<QueuedRequest>(this);
  phase: Phase = 'unready';
  /** What the wait was taken to be when it entered, ms; undefined: nothing was foretold. */
  predictedMs: number | undefined;
  /** What is known of its prompt, from `ready` on. */
  work: Work | undefined;
  /** When the wait now running began. */
  readyAt = 0;
  /** Waiting done before that, ms. */
  waitedMs = 0;
  /** How often the engine had gone or come when it entered (QueueState.breaks). */
  breaks = 0;
  /** When its stay in the queue now running began, checks included. */
  queuedAt = 0;
  /** Stays done before that, ms. */
  queuedMs = 0;
  /** Seats held now, since when, and seat-milliseconds held before that. */
  seats = 0;
  seatsSince = 0;
  seatMs = 0;
  /** Its engine was lost once already. */
  returned = false;
  /** When it entered, and when it was given its seat. */
  enteredAt = 0;
  grantedAt = 0;
  /** Another with the same fingerprint was under way meanwhile. */
  hedged = false;
  /** What its caller's patience was is known. */
  told = false;
  /** Cancels its timer. */
  disarm: (() => void) | undefined;
  readonly outcome: Promise<TicketOutcome>;
  readonly request: QueueRequest;
  readonly order: number;
  readonly #queue: RequestQueue;
  #settle!: (outcome: TicketOutcome) => void;

  constructor(queue: RequestQueue, request: QueueRequest, order: number) {
    this.#queue = queue;
    this.request = request;
    this.order = order;
    this.outcome = this.promise();
  }

  /** A promise for the next outcome; made anew when the place comes back from a lease. */
  promise(): Promise<TicketOutcome> {
    return new Promise((resolve) => (this.#settle = resolve));
  }

  settle(outcome: TicketOutcome): void {
    this.#settle(outcome);
  }

  ready(work: Work): void {
    this.work ??= work;
    this.#queue.ready(this);
  }

  cancel(left?: 'left'): void {
    this.#queue.cancel(this, left === 'left');
  }
}
