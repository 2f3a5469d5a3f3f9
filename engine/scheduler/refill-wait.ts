import type { Clock } from '../protocol/clock.js';

/**
 * The longest wait of a step for jobs that take over free seats, as a share of the step. A job that arrives just after
 * a step began waits for the whole step with its seat idle; waiting delays the other replies' next token.
 */
const OF_STEP = 1 / 4;
/** Timers have whole milliseconds, and receiving a job takes one or two. */
const LEAST_MS = 2;
/** The absolute bound, ms: jobs that take longer do not come from a queue. */
const MOST_MS = 25;
/** The weight of the newest wait in the average: about the last eight count. */
const NEWEST = 1 / 8;
/**
 * If fewer of the free seats than this were refilled in time recently, only one opportunity in eight is used as a
 * probe. A successful probe is followed by another, so that a dozen suffice when load returns.
 */
const LIKELY = 3 / 4;
const TRY_EVERY = 8;

/**
 * Waits for jobs to refill free seats, if that is likely judging by previous waits. If jobs queue outside, or callers
 * continue at once, a free seat is requested again within some milliseconds: the time to report it and to receive the
 * next job.
 */
export class RefillWait {
  readonly #clock: Clock;
  /** The share of recently free seats that were refilled in time; initially 1. */
  #likely = 1;
  /** Opportunities to skip until the next probe. */
  #untilTry = 0;
  /** The current wait: seats of arrived jobs, and how many are enough. */
  #waiting: { arrived: number; readonly enough: number; readonly end: () => void } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether free seats between steps of this length are worth a wait. Called once per opportunity. */
  expects(stepMs: number): boolean {
    if (within(stepMs) < LEAST_MS) return false;
    if (this.#likely >= LIKELY || this.#untilTry === 0) return true;
    this.#untilTry -= 1;
    return false;
  }

  /**
   * Resolves when as many of these seats are refilled as is likely, or at the time limit. The sidecar has just been
   * notified.
   */
  async wait(seats: number, stepMs: number): Promise<void> {
    const enough = Math.ceil(seats * Math.max(this.#likely, LIKELY));
    const waiting = await new Promise<{ readonly arrived: number }>((resolve) => {
      const cancel = this.#clock.after(within(stepMs), () => this.stop());
      const waits = {
        arrived: 0,
        enough,
        end: (): void => {
          cancel();
          resolve(waits);
        },
      };
      this.#waiting = waits;
    });
    const well = waiting.arrived >= enough;
    this.#untilTry = well ? 0 : TRY_EVERY - 1;
    this.#likely += NEWEST * ((well ? 1 : waiting.arrived / seats) - this.#likely);
  }

  /** A job with this many seats arrived. */
  arrived(seats: number): void {
    if (!this.#waiting) return;
    this.#waiting.arrived += seats;
    if (this.#waiting.arrived >= this.#waiting.enough) this.stop();
  }

  /** Ends the current wait. */
  stop(): void {
    this.#waiting?.end();
    this.#waiting = undefined;
  }
}

function within(stepMs: number): number {
  return Math.min(stepMs * OF_STEP, MOST_MS);
}
