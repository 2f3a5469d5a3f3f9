/** A seat queue on a fake clock, and what tests of its rules do with it. */
import { SeatQueue, type QueueOptions } from '../../sidecar/admission/queue.js';
import type { QueueReport } from '../../sidecar/admission/report.js';
import type {
  Lease,
  QueueConfig,
  QueueRequest,
  Refused,
  SeatNeeds,
  Ticket,
  TicketOutcome,
} from '../../sidecar/admission/types.js';
import { FakeClock } from './fake-clock.js';

const CONFIG: QueueConfig = { maxWaitMs: 10_000, waitingPerSeat: 8, waitingBytes: 1000 };

export class QueueDesk {
  readonly clock = new FakeClock();
  readonly queue: SeatQueue;

  constructor(
    seats: QueueOptions['seats'] = 1,
    config: Partial<QueueConfig> = {},
    options: Partial<Omit<QueueOptions, 'seats' | 'config'>> = {},
  ) {
    this.queue = new SeatQueue({
      clock: this.clock,
      random: () => 0,
      config: { ...CONFIG, ...config },
      seats,
      ...options,
    });
  }

  get report(): QueueReport {
    return this.queue.report(100);
  }

  ask(account: string, request: Partial<QueueRequest> = {}): Ticket | Refused {
    return this.queue.enter({ account, weight: 1, bytes: 10, seatsWanted: 1, ...request });
  }

  /** One that is still checked. Throws if it is refused. */
  enter(account: string, request: Partial<QueueRequest> = {}): Ticket {
    return ticketOf(this.ask(account, request));
  }

  seat({ outcome }: Pick<Ticket, 'outcome'>): Promise<Lease> {
    return outcome.then(leaseOf);
  }
}

export function ticketOf(entered: Ticket | Refused, needs?: SeatNeeds): Ticket {
  if ('kind' in entered) throw new Error(`refused: ${entered.reason}`);
  if (needs) entered.ready(needs);
  return entered;
}

export function leaseOf(outcome: TicketOutcome): Lease {
  if (outcome.kind !== 'seated') throw new Error(outcome.kind === 'refused' ? outcome.reason : outcome.kind);
  return outcome.lease;
}

/** After all outcomes that are due were delivered. */
export async function later(): Promise<undefined> {
  for (let i = 0; i < 12; i += 1) await Promise.resolve();
  return undefined;
}
