import type { Lease } from '../admission/seat-queue.js';
import type { ServiceClass } from '../domain/service-class.js';
import type { CancelPhase } from '../telemetry/model-metrics.js';

/** A request that was given seats. Its fields are read when the console asks, so that a token costs no update. */
export interface SeatHolder {
  readonly model: string;
  readonly account: string;
  readonly class: ServiceClass;
  /** Clock reading when it was given its seats, ms. */
  readonly since: number;
  /** How many it holds at this moment is asked of it. */
  readonly lease: Pick<Lease, 'seats'>;
  /** Where the request is; `waiting`: its engine has not taken it up yet. */
  readonly context: { readonly phase: CancelPhase };
}

/**
 * Which requests hold seats, for the operators' console: who they belong to and how far they are. It holds no more than
 * the requests under way, since each leaves when it ends. What a request was asked or answers is not here.
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

  /** Those who hold seats of a model now, in the order in which they were given them. The same object for as long as it stays. */
  holders(model: string): SeatHolder[] {
    return [...this.#holders].filter((holder) => holder.model === model && holder.lease.seats > 0);
  }
}
