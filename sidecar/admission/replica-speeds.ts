/**
 * Learns how fast the replicas of a model are beside each other, whatever their load: the more seats are busy, the longer a token
 * takes, on every device. The time of a token is taken as a product of two factors, which are learned together as moving averages:
 * the time with so many busy seats, of all replicas, and how many times as long it takes on this replica.
 */

/** Weight of the newest time in both averages. */
const ALPHA = 0.1;

export class ReplicaSpeeds {
  /** Time of a token, ms, by busy seats. */
  readonly #tokenMs: number[] = [];
  /** How many times as long it takes on each replica; their mean is 1. Undefined: not known. */
  readonly #times: (number | undefined)[];

  constructor(replicas: number) {
    this.#times = Array.from({ length: replicas }, () => undefined);
  }

  get times(): readonly (number | undefined)[] {
    return this.#times;
  }

  /** The tokens of a reply took this long on average, ms, while so many seats of this replica were busy. */
  observe(replica: number, busy: number, ms: number): void {
    const own = this.#times[replica] ?? 1;
    const usual = this.#tokenMs[busy] ?? ms / own;
    this.#tokenMs[busy] = usual + ALPHA * (ms / own - usual);
    this.#times[replica] = own + ALPHA * (ms / usual - own);
    const known = this.#times.filter((times) => times !== undefined);
    const mean = known.reduce((sum, times) => sum + times, 0) / known.length;
    this.#times.forEach((times, at) => (this.#times[at] = times === undefined ? undefined : times / mean));
  }
}
