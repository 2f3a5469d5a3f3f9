import type { Clock } from '../protocol/clock.js';
import type { Output } from '../protocol/jobs.js';
import { Outbox, type Emit } from '../scheduler/outbox.js';

export interface ReportOptions {
  /** The configured values, which the sidecar has already. */
  readonly seats: number;
  readonly emit: Emit;
  /** Seats and requests given up so far, when either changes. */
  readonly capacity: (seats: number, unconfirmed: number) => void;
}

/** What the sidecar is sent. */
export class Reports {
  readonly #options: ReportOptions;
  readonly #outbox: Outbox;
  readonly #steps: () => number;
  #flushing = false;
  #reported: string;

  /** `steps`: read for each message. */
  constructor(options: ReportOptions, clock: Clock, steps: () => number) {
    this.#options = options;
    this.#outbox = new Outbox(options.emit, 0, clock, () => true);
    this.#steps = steps;
    this.#reported = `${options.seats} 0`;
  }

  /** All that comes in one turn of the event loop is sent in one message. */
  push(outputs: readonly Output[]): void {
    this.#outbox.outputs.push(...outputs);
    if (this.#flushing) return;
    this.#flushing = true;
    setImmediate(() => {
      this.#flushing = false;
      this.#outbox.send(this.#steps(), []);
    });
  }

  capacity(seats: number, unconfirmed: number): void {
    const report = `${seats} ${unconfirmed}`;
    if (report === this.#reported) return;
    this.#reported = report;
    this.#options.capacity(seats, unconfirmed);
  }
}
