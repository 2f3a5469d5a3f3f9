/**
 * The seats of all replicas of a model, and how fast the replicas are beside each other.
 *
 * The more seats are busy, the longer a token takes on every device, so its time is taken as a product of two factors, which are learned
 * together as moving averages of logarithms: the time with so many busy seats, of all replicas, and how many times as long it takes on this
 * replica. Busy seats are all that is known of the load. Long prompts or long contexts that one replica has for a while count as slowness.
 */

/** The queue's counts of one replica of the model's engine. */
export interface ReplicaState {
  /** Seats that it reported last, and the tokens that each of them can hold. */
  readonly seats: number;
  readonly contextPerSeat: number;
  /** Whether it takes jobs. */
  readonly up: boolean;
  readonly busy: number;
  /** Seats that no lease holds, but that are kept for sessions (sessions.ts): for all other requests they are taken. */
  readonly kept: number;
  /** Seats of these that are free for all other requests, but lent (lent.ts). */
  readonly lent: number;
  /** When a seat of it was last given, in grants since the start; 0: never. */
  readonly grantedLast: number;
  /** Seats of other replicas, of the same length as its own, that were given since. */
  readonly passedOver: number;
  /** How many times as long a token of a reply takes as on the average replica under the same load; undefined if it is not known. */
  readonly tokenTimeRatio: number | undefined;
}

/** The counts of a replica at the start. */
export type ReplicaSize = Pick<ReplicaState, 'seats' | 'contextPerSeat'>;

type Counted = { -readonly [Field in keyof ReplicaState]: ReplicaState[Field] };

/** The seats of all replicas of one model. Sums are updated at each change, since they are read more often. O(replicas) a change. */
export class ReplicaSeats {
  readonly #replicas: readonly Counted[];
  readonly #speeds: ReplicaSpeeds;
  #seats = 0;
  #freeSeats = 0;
  #busy = 0;
  #kept = 0;
  #idle = 0;
  #paused = false;
  #longestFree = 0;
  #grants = 0;

  constructor(sizes: readonly ReplicaSize[]) {
    this.#replicas = sizes.map(({ seats, contextPerSeat }) => {
      return {
        seats,
        contextPerSeat,
        up: true,
        busy: 0,
        kept: 0,
        lent: 0,
        grantedLast: 0,
        passedOver: 0,
        tokenTimeRatio: undefined,
      };
    });
    this.#speeds = new ReplicaSpeeds(sizes.length);
    this.#sum();
  }

  get all(): readonly ReplicaState[] {
    return this.#replicas;
  }

  /** The distinct seat lengths (tokens that a seat holds), the lowest first. */
  get lengths(): readonly number[] {
    return [...new Set(this.#replicas.map(({ contextPerSeat }) => contextPerSeat))].sort((a, b) => a - b);
  }

  /** Seats of the available replicas; of all replicas while none is available. */
  get seats(): number {
    return this.#seats;
  }

  /** Seats that no lease holds and that are not kept, of the available replicas. */
  get freeSeats(): number {
    return this.#freeSeats;
  }

  /** Busy seats, also those of replicas that are not available. */
  get busy(): number {
    return this.#busy;
  }

  get kept(): number {
    return this.#kept;
  }

  /** Seats of the available replicas that nothing uses: free ones that are not lent. */
  get idle(): number {
    return this.#idle;
  }

  get paused(): boolean {
    return this.#paused;
  }

  /** Whether a seat is free that holds at least this many tokens. */
  hasFree(tokens: number): boolean {
    return this.#freeSeats > 0 && tokens <= this.#longestFree;
  }

  /** Seats that hold at least this many tokens, of the available replicas; of all replicas while none of these is available. */
  seatsFor(tokens: number): number {
    let [up, known] = [0, 0];
    for (const replica of this.#replicas) {
      if (replica.contextPerSeat < tokens) continue;
      known += replica.seats;
      if (replica.up) up += replica.seats;
    }
    return up > 0 ? up : known;
  }

  /** The free share of the seats that hold at least this many tokens; undefined if no replica with such seats is available. */
  freeShareFor(tokens: number): number | undefined {
    let [seats, free] = [0, 0];
    for (const replica of this.#replicas) {
      if (!replica.up || replica.contextPerSeat < tokens) continue;
      seats += replica.seats;
      free += freeSeatsOf(replica);
    }
    return seats > 0 ? free / seats : undefined;
  }

  /** The longest seat below this length on an available replica, in tokens; 0: there is none. */
  shorterThan(contextPerSeat: number): number {
    let longest = 0;
    for (const { up, contextPerSeat: context } of this.#replicas) {
      if (up && context < contextPerSeat && context > longest) longest = context;
    }
    return longest;
  }

  /** Seats of a replica that no lease holds and that are not kept; 0 while it is not available. */
  freeSeatsAt(at: number): number {
    const replica = this.#replicas[at];
    return replica === undefined ? 0 : freeSeatsOf(replica);
  }

  isUp(at: number): boolean {
    return this.#replicas[at]?.up ?? false;
  }

  /** So many seats of a replica more, or fewer if negative, are held by leases, kept for sessions, or lent. */
  count(at: number, how: 'busy' | 'kept' | 'lent', seats: number): void {
    const replica = this.#replicas[at];
    if (replica === undefined) return;
    replica[how] += seats;
    this.#sum();
  }

  granted(at: number): void {
    const replica = this.#replicas[at];
    if (replica === undefined) return;
    replica.grantedLast = this.#grants += 1;
    for (const each of this.#replicas) if (each.contextPerSeat === replica.contextPerSeat) each.passedOver += 1;
    replica.passedOver = 0;
  }

  /** The mean time of a token of a reply on this replica, ms. */
  observeTokenMs(at: number, ms: number): void {
    const replica = this.#replicas[at];
    if (replica === undefined || this.#replicas.length < 2 || !(ms > 0)) return;
    this.#speeds.observe(at, replica.busy + replica.lent, ms);
    this.#replicas.forEach((each, index) => (each.tokenTimeRatio = this.#speeds.ratioOf(index)));
  }

  /** A replica went away. */
  pause(at: number): void {
    const replica = this.#replicas[at];
    if (replica === undefined) return;
    replica.up = false;
    this.#sum();
  }

  /** A replica is there, with so many seats. */
  resume(at: number, seats: number): void {
    const replica = this.#replicas[at];
    if (replica === undefined) return;
    replica.up = true;
    replica.seats = seats;
    this.#sum();
  }

  #sum(): void {
    let [seats, known, free, busy, kept, idle, longest] = [0, 0, 0, 0, 0, 0, 0];
    this.#paused = true;
    for (const replica of this.#replicas) {
      known += replica.seats;
      busy += replica.busy;
      kept += replica.kept;
      if (!replica.up) continue;
      this.#paused = false;
      seats += replica.seats;
      const own = freeSeatsOf(replica);
      free += own;
      idle += Math.max(0, idleSeatsOf(replica));
      if (own > 0 && replica.contextPerSeat > longest) longest = replica.contextPerSeat;
    }
    this.#seats = this.#paused ? known : seats;
    this.#freeSeats = free;
    this.#busy = busy;
    this.#kept = kept;
    this.#idle = idle;
    this.#longestFree = longest;
  }
}

/** Seats that no lease holds and that are not kept; 0 while the replica is not available. */
export function freeSeatsOf({ up, seats, busy, kept }: ReplicaState): number {
  return up ? Math.max(0, seats - busy - kept) : 0;
}

/** Free seats that are not lent; 0 while the replica is not available. Negative: so many lent ones are wanted back. */
export function idleSeatsOf({ up, seats, busy, kept, lent }: ReplicaState): number {
  return up ? seats - busy - kept - lent : 0;
}

/** Weight of the newest observation in both averages: one reply has several observations, which are alike. */
const ALPHA = 0.03;

/** An observation further than this factor from the expected time counts as this: a stopped process or a long prefill is not the device. */
const MAX_FACTOR = 4;

export class ReplicaSpeeds {
  /** Logarithms of the time of a token, ms, by busy seats. */
  readonly #byBusy: number[] = [];
  /** Logarithms of how many times as long it takes on each replica, less a number common to all; undefined if it is not known. */
  readonly #byReplica: (number | undefined)[];

  constructor(replicas: number) {
    this.#byReplica = Array.from({ length: replicas }, () => undefined);
  }

  /** How many times as long a token takes on this replica as on the average one under the same load; undefined if it is not known. */
  ratioOf(replica: number): number | undefined {
    const ratio = this.#byReplica[replica];
    return ratio === undefined ? undefined : Math.exp(ratio - this.#mean());
  }

  /** The mean time of a token of a reply was `ms`, more than 0, with `busy` seats on this replica. */
  observe(replica: number, busy: number, ms: number): void {
    const seen = Math.log(ms);
    const own = this.#byReplica[replica] ?? this.#mean();
    const usual = this.#byBusy[busy] ?? seen - own;
    const limit = Math.log(MAX_FACTOR);
    const error = Math.min(limit, Math.max(-limit, seen - usual - own));
    this.#byBusy[busy] = usual + ALPHA * error;
    this.#byReplica[replica] = own + ALPHA * error;
  }

  /** The mean over the known replicas, with which another one begins; 0 if none is known. */
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
