/**
 * Learns how fast the replicas of a model are beside each other. The more seats are busy, the longer a token takes on every device, so
 * its time is taken as a product of two factors, which are learned together as moving averages of logarithms: the time with so many
 * busy seats, of all replicas, and how many times as long it takes on this replica.
 *
 * Busy seats are all that it knows of the load. Long prompts or long contexts that one replica has for a while count as slowness.
 */

/** Weight of the newest observation in both averages: one reply has several observations, which are alike. */
const ALPHA = 0.03;

/** An observation that is more times as long, or as short, counts as this: a stopped process or a long prefill is not the device. */
const MOST_TIMES = 4;

export class ReplicaSpeeds {
  /** Logarithms of the time of a token, ms, by busy seats. */
  readonly #byBusy: number[] = [];
  /** Logarithms of how many times as long it takes on each replica, less a number common to all. Undefined: not known. */
  readonly #byReplica: (number | undefined)[];

  constructor(replicas: number) {
    this.#byReplica = Array.from({ length: replicas }, () => undefined);
  }

  /** How many times as long a token takes on this replica as on the average one under the same load; undefined: not known. */
  ratioOf(replica: number): number | undefined {
    const ratio = this.#byReplica[replica];
    return ratio === undefined ? undefined : Math.exp(ratio - this.#mean());
  }

  /** The mean time of a token of a reply was `ms`, more than 0, with so many busy seats on this replica. */
  observe(replica: number, busy: number, ms: number): void {
    const seen = Math.log(ms);
    const own = this.#byReplica[replica] ?? this.#mean();
    const usual = this.#byBusy[busy] ?? seen - own;
    const most = Math.log(MOST_TIMES);
    const error = Math.min(most, Math.max(-most, seen - usual - own));
    this.#byBusy[busy] = usual + ALPHA * error;
    this.#byReplica[replica] = own + ALPHA * error;
  }

  /** Of the replicas that are known, with which another one begins; 0 without any. */
  #mean(): number {
    let [sum, count] = [0, 0];
    for (const ratio of this.#byReplica) {
      if (ratio === undefined) continue;
      sum += ratio;
      count += 1;
    }
    return count === 0 ? 0 : sum / count;
  }
}
