import type { Clock } from '../../../sidecar/lib/clock.js';
import type { QueueRequest, Lease, Refused, Ticket } from '../../../sidecar/admission/types.js';

/** The part of a SeatQueue that a request uses when nothing fails: what the simulator drives. */
export interface Door {
  enter(request: QueueRequest): Pass | Refused;
}

export interface Pass extends Pick<Ticket, 'ready'> {
  readonly outcome: Promise<Seated | Refused | { readonly kind: 'cancelled' }>;
}

export interface Seated {
  readonly kind: 'seated';
  readonly lease: Pick<Lease, 'release'> & {
    /** The wait predicted on arrival, ms; undefined: none was predicted. */
    readonly predictedMs?: number | undefined;
  };
}

/** The environment of each policy. */
export interface Setting {
  readonly clock: Clock;
  readonly random: () => number;
  readonly seats: number;
  /** How long a client waits for its seat, ms. Policies with a time to live drop requests that waited this long. */
  readonly patienceMs: number;
}

export interface Policy {
  readonly name: string;
  open(setting: Setting): Door;
}
