import type { Clock } from './clock.js';

/**
 * The share of a step that the next one waits at most for those who take over the seats that were left. A job that comes a
 * moment after a step began stays without its first token for all of it, and its seat empty; the others get their next token
 * so much later.
 */
const OF_STEP = 1 / 4;
/** Timers go by whole milliseconds, and to be sent a job takes one or two. */
const LEAST_MS = 2;
/** Who has not come by then comes from further away than a queue. */
const MOST_MS = 25;
/** The weight of the newest wait in what is likely: about the last eight count. */
const NEWEST = 1 / 8;
/**
 * Where fewer of the seats than this were taken over in time only every so many-th chance is a try. One that went well is
 * followed by another, so that a dozen are enough when load comes back.
 */
const LIKELY = 3 / 4;
const TRY_EVERY = 8;

/**
 * Where jobs queue outside, or callers go on at once, a seat that was left is asked for again within some milliseconds: as long
 * as it takes to tell of it and to be sent the next job. Waits for that where it is likely, by what came of the waits before.
 */
export class RefillWait {
  readonly #clock: Clock;
  /** Of the seats that were waited for lately, those that were taken over in time; at first it is hoped for. */
  #likely = 1;
  /** Chances to let go until the next try. */
  #untilTry = 0;
  /** Under way: seats that jobs came for, and how many are enough. */
  #waiting: { came: number; readonly enough: number; readonly end: () => void } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether seats that are left between steps of such a length are worth a wait. Called once a chance. */
  expects(stepMs: number): boolean {
    if (within(stepMs) < LEAST_MS) return false;
    if (this.#likely >= LIKELY || this.#untilTry === 0) return true;
    this.#untilTry -= 1;
    return false;
  }

  /**
   * Resolves when jobs came for as many of these seats as is likely, or when it is too late. Those who are to send them have
   * just been told.
   */
  async wait(seats: number, stepMs: number): Promise<void> {
    const enough = Math.ceil(seats * Math.max(this.#likely, LIKELY));
    const waiting = await new Promise<{ readonly came: number }>((resolve) => {
      const cancel = this.#clock.after(within(stepMs), () => this.stop());
      const waits = {
        came: 0,
        enough,
        end: (): void => {
          cancel();
          resolve(waits);
        },
      };
      this.#waiting = waits;
    });
    const well = waiting.came >= enough;
    this.#untilTry = well ? 0 : TRY_EVERY - 1;
    this.#likely += NEWEST * ((well ? 1 : waiting.came / seats) - this.#likely);
  }

  /** A job came that has so many seats. */
  came(seats: number): void {
    if (!this.#waiting) return;
    this.#waiting.came += seats;
    if (this.#waiting.came >= this.#waiting.enough) this.stop();
  }

  /** Whoever waits waits no longer. */
  stop(): void {
    this.#waiting?.end();
    this.#waiting = undefined;
  }
}

function within(stepMs: number): number {
  return Math.min(stepMs * OF_STEP, MOST_MS);
}
