import { ReplicaSpeeds } from './replica-speeds.js';

/** The queue's counts of one replica of the model's engine. */
export interface Replica {
  /** Seats that it reported last, and the tokens that each of them can hold. */
  readonly seats: number;
  readonly contextPerSeat: number;
  /** Whether it takes jobs. */
  readonly up: boolean;
  /** Seats held. */
  readonly busy: number;
  /** When a seat of it was last given, in grants since the start; 0: never. */
  readonly grantedLast: number;
  /** Seats of other replicas, as long as its own, that were given since. */
  readonly passedOver: number;
  /** How many times as long a token of a reply takes as on the average replica under the same load; undefined: not known. */
  readonly tokenTimeRatio: number | undefined;
}

/** The counts of a replica at the start. */
export type ReplicaSize = Pick<Replica, 'seats' | 'contextPerSeat'>;

type Counted = { -readonly [Field in keyof Replica]: Replica[Field] };

/**
 * The seats of all replicas of one model. The sums are brought up to date when a count changes, since they are read more
 * often than that. O(replicas) a change.
 */
export class ReplicaSeats {
  readonly #replicas: readonly Counted[];
  readonly #speeds: ReplicaSpeeds;
  #seats = 0;
  #free = 0;
  #busy = 0;
  #paused = false;
  #longestFree = 0;
  #grants = 0;

  constructor(sizes: readonly ReplicaSize[]) {
    this.#replicas = sizes.map(({ seats, contextPerSeat }) => {
      return { seats, contextPerSeat, up: true, busy: 0, grantedLast: 0, passedOver: 0, tokenTimeRatio: undefined };
    });
    this.#speeds = new ReplicaSpeeds(sizes.length);
    this.#sum();
  }

  get all(): readonly Replica[] {
    return this.#replicas;
  }

  /** The tokens that a seat holds, each number once, the lowest first. */
  get lengths(): readonly number[] {
    return [...new Set(this.#replicas.map(({ contextPerSeat }) => contextPerSeat))].sort((a, b) => a - b);
  }

  /** Seats of the replicas that are up; of all while none is. */
  get seats(): number {
    return this.#seats;
  }

  /** Seats that no lease holds, of the replicas that are up. */
  get free(): number {
    return this.#free;
  }

  /** Seats held, also those of replicas that are away. */
  get busy(): number {
    return this.#busy;
  }

  /** Whether no replica is up. */
  get paused(): boolean {
    return this.#paused;
  }

  /** Whether a seat is free that holds so many tokens. */
  holds(tokens: number): boolean {
    return this.#free > 0 && tokens <= this.#longestFree;
  }

  /** Seats that hold so many tokens, of the replicas that are up; of all while none of these is. */
  seatsFor(tokens: number): number {
    let [up, known] = [0, 0];
    for (const replica of this.#replicas) {
      if (replica.contextPerSeat < tokens) continue;
      known += replica.seats;
      if (replica.up) up += replica.seats;
    }
    return up > 0 ? up : known;
  }

  /** The share that is free of the seats that hold so many tokens; undefined: no replica that has such is up. */
  freeShareFor(tokens: number): number | undefined {
    let [seats, free] = [0, 0];
    for (const replica of this.#replicas) {
      if (!replica.up || replica.contextPerSeat < tokens) continue;
      seats += replica.seats;
      free += freeSeats(replica);
    }
    return seats > 0 ? free / seats : undefined;
  }

  /** The most tokens that a seat holds of the replicas that are up and whose seats are shorter than this; 0: there are none. */
  shorterThan(contextPerSeat: number): number {
    let longest = 0;
    for (const { up, contextPerSeat: context } of this.#replicas) {
      if (up && context < contextPerSeat && context > longest) longest = context;
    }
    return longest;
  }

  /** Seats of a replica that no lease holds; 0 while it is away. */
  freeOf(at: number): number {
    const replica = this.#replicas[at];
    return replica === undefined ? 0 : freeSeats(replica);
  }

  isUp(at: number): boolean {
    return this.#replicas[at]?.up ?? false;
  }

  /** The leases of a replica have so many seats more, or fewer. */
  hold(at: number, seats: number): void {
    const replica = this.#replicas[at];
    if (replica === undefined) return;
    replica.busy += seats;
    this.#sum();
  }

  /** A request is given a seat of this replica. */
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
    this.#speeds.observe(at, replica.busy, ms);
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
    let [seats, known, free, busy, longest] = [0, 0, 0, 0, 0];
    this.#paused = true;
    for (const replica of this.#replicas) {
      known += replica.seats;
      busy += replica.busy;
      if (!replica.up) continue;
      this.#paused = false;
      seats += replica.seats;
      const unheld = freeSeats(replica);
      free += unheld;
      if (unheld > 0 && replica.contextPerSeat > longest) longest = replica.contextPerSeat;
    }
    this.#seats = this.#paused ? known : seats;
    this.#free = free;
    this.#busy = busy;
    this.#longestFree = longest;
  }
}

/** Seats that no lease holds; 0 while the replica is away. */
export function freeSeats({ up, seats, busy }: Replica): number {
  return up ? Math.max(0, seats - busy) : 0;
}
