import type { Lease } from '../admission/seat-queue.js';
import type { ServiceClass } from '../domain/service-class.js';
import type { RequestPhase } from '../telemetry/model-metrics.js';

/** A request that holds seats. Its fields are read when the console needs them, so that a token causes no update. */
export interface SeatHolder {
  readonly model: string;
  readonly account: string;
  readonly class: ServiceClass;
  /** Clock reading when it was given its seats, ms. */
  readonly since: number;
  /** Has the present number of its seats. */
  readonly lease: Pick<Lease, 'seats'>;
  /** Has the request's phase; `waiting`: its engine has not started it yet. */
  readonly context: { readonly phase: RequestPhase };
}

/**
 * The requests that hold seats, with account and phase, for the operators' console. It contains running requests only, since
 * each is removed when it ends, and no content of a request or reply.
 */
export class SeatBoard {
  readonly #holders = new Set<SeatHolder>();

  enter(holder: SeatHolder): void {
    this.#holders.add(holder);
  }

  /** Its request ended. Idempotent. */
  leave(holder: SeatHolder): void {
    this.#holders.delete(holder);
  }

  /** The requests that hold seats of a model, in the order of their grants. A request is the same object until it ends. */
  holders(model: string): SeatHolder[] {
    return [...this.#holders].filter((holder) => holder.model === model && holder.lease.seats > 0);
  }
}
