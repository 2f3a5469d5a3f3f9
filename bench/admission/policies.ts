/** The sidecar's queue and the disciplines that it is compared with, behind the part of a queue that a request uses. */
import { SeatQueue } from '../../sidecar/admission/queue.js';
import type { Lease, QueueRequest, Refused, Ticket } from '../../sidecar/admission/types.js';
import type { Clock } from '../../sidecar/lib/clock.js';

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

/** The waiting requests, in the order of the policy. */
interface Discipline {
  add(waiting: Waiting): void;
  /** Removes and returns the next one. */
  take(): Waiting | undefined;
  /** Its client gave up. */
  remove(waiting: Waiting): void;
  /** A seat of this account is free again. */
  ended?(account: string): void;
}

interface Waiting {
  readonly account: string;
  readonly settle: (outcome: Seated | Refused) => void;
  /** Cancels its timer, if any. */
  disarm: () => void;
}

interface Limits {
  /** How many may wait. */
  readonly waiting?: number;
  /** How long one may wait, ms. */
  readonly ttlMs?: number;
}

/** Seats and a queue before them: the common part of the reference policies. */
class ReferenceQueue implements Door {
  readonly #setting: Setting;
  readonly #line: Discipline;
  readonly #limits: Limits;
  #free: number;
  #waiting = 0;

  constructor(setting: Setting, line: Discipline, limits: Limits) {
    this.#setting = setting;
    this.#line = line;
    this.#limits = limits;
    this.#free = setting.seats;
  }

  enter({ account }: QueueRequest): Pass | Refused {
    if (this.#free === 0 && this.#waiting >= (this.#limits.waiting ?? Infinity)) return refused('full');
    let settle!: Waiting['settle'];
    const outcome = new Promise<Seated | Refused>((resolve) => (settle = resolve));
    const waiting: Waiting = { account, settle, disarm: () => undefined };
    return { outcome, ready: () => this.#ready(waiting) };
  }

  #ready(waiting: Waiting): void {
    this.#line.add(waiting);
    this.#waiting += 1;
    if (this.#limits.ttlMs !== undefined)
      waiting.disarm = this.#setting.clock.after(this.#limits.ttlMs, () => this.#expire(waiting));
    this.#dispatch();
  }

  #expire(waiting: Waiting): void {
    this.#line.remove(waiting);
    this.#waiting -= 1;
    waiting.settle(refused('wait'));
  }

  #dispatch(): void {
    while (this.#free > 0) {
      const next = this.#line.take();
      if (next === undefined) return;
      next.disarm();
      this.#waiting -= 1;
      this.#free -= 1;
      next.settle({ kind: 'seated', lease: { release: () => this.#release(next.account) } });
    }
  }

  #release(account: string): void {
    this.#free += 1;
    this.#line.ended?.(account);
    this.#dispatch();
  }
}

/** These policies do not know when to retry. */
function refused(reason: 'full' | 'wait'): Refused {
  return { kind: 'refused', reason, retryAfterMs: 1000 };
}

/** The sidecar’s queue with its default settings. */
export const ours: Policy = {
  name: 'ra-sidecar',
  open: ({ clock, random, seats, patienceMs }) =>
    new SeatQueue({
      clock,
      random,
      seats,
      config: { maxWaitMs: patienceMs, waitingPerSeat: 8, waitingBytes: Infinity },
    }),
};

/** A server without admission control: all requests wait, and those of callers that left are still served. */
export const fifoUnbounded: Policy = {
  name: 'FIFO',
  open: (setting) => new ReferenceQueue(setting, new Fifo(), {}),
};

/** The queue is bounded so that its last request can just be served in time; requests of callers that left are not served. */
export const fifoWithCap: Policy = {
  name: 'FIFO with cap',
  open: (setting) => new ReferenceQueue(setting, new Fifo(), { waiting: 8 * setting.seats, ttlMs: setting.patienceMs }),
};

class Fifo implements Discipline {
  /** A set keeps the order of arrival. */
  readonly #waiting = new Set<Waiting>();

  add(waiting: Waiting): void {
    this.#waiting.add(waiting);
  }

  take(): Waiting | undefined {
    const [first] = this.#waiting;
    if (first !== undefined) this.#waiting.delete(first);
    return first;
  }

  remove(waiting: Waiting): void {
    this.#waiting.delete(waiting);
  }
}

/** One request of each account in turn, however long it is; a request that waited too long is dropped. */
export const roundRobin: Policy = {
  name: 'round robin with TTL',
  open: (setting) => new ReferenceQueue(setting, new RoundRobin(), { ttlMs: setting.patienceMs }),
};

class RoundRobin implements Discipline {
  /** In the order of their turns; only waiting accounts have one. */
  readonly #accounts = new Map<string, Set<Waiting>>();

  add(waiting: Waiting): void {
    const own = this.#accounts.get(waiting.account);
    if (own === undefined) this.#accounts.set(waiting.account, new Set([waiting]));
    else own.add(waiting);
  }

  take(): Waiting | undefined {
    const [turn] = this.#accounts;
    if (turn === undefined) return undefined;
    const [account, own] = turn;
    const [first] = own;
    if (first !== undefined) own.delete(first);
    this.#accounts.delete(account);
    if (own.size > 0) this.#accounts.set(account, own);
    return first;
  }

  remove(waiting: Waiting): void {
    const own = this.#accounts.get(waiting.account);
    own?.delete(waiting);
    if (own?.size === 0) this.#accounts.delete(waiting.account);
  }
}

/**
 * The virtual token counter (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024), algorithm 2, with a
 * time to live. Every seat makes tokens at the same rate here, so that a counter of tokens equals one of seat time: its
 * prices are exact, which favours it.
 */
export const vtc: Policy = {
  name: 'VTC with TTL',
  open: (setting) => new ReferenceQueue(setting, new Counters(setting.clock), { ttlMs: setting.patienceMs }),
};

interface CounterState {
  readonly waiting: Set<Waiting>;
  counter: number;
  running: number;
}

class Counters implements Discipline {
  readonly #clock: Clock;
  readonly #states = new Map<string, CounterState>();
  #chargedAt = 0;
  /** The account whose queue became empty last. */
  #lastToLeave: CounterState | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(waiting: Waiting): void {
    this.#charge();
    const state = this.#state(waiting.account);
    if (state.waiting.size === 0) {
      const floor = this.#lowest()?.counter ?? this.#lastToLeave?.counter ?? 0;
      state.counter = Math.max(state.counter, floor);
    }
    state.waiting.add(waiting);
  }

  take(): Waiting | undefined {
    this.#charge();
    const state = this.#lowest();
    if (state === undefined) return undefined;
    const [first] = state.waiting;
    if (first !== undefined) this.#leave(state, first);
    state.running += 1;
    return first;
  }

  remove(waiting: Waiting): void {
    this.#leave(this.#state(waiting.account), waiting);
  }

  ended(account: string): void {
    this.#charge();
    this.#state(account).running -= 1;
  }

  #leave(state: CounterState, waiting: Waiting): void {
    state.waiting.delete(waiting);
    if (state.waiting.size === 0) this.#lastToLeave = state;
  }

  /** While tokens are made, not at the end. */
  #charge(): void {
    const ms = this.#clock.now() - this.#chargedAt;
    this.#chargedAt = this.#clock.now();
    if (ms > 0) for (const state of this.#states.values()) state.counter += state.running * ms;
  }

  #lowest(): CounterState | undefined {
    let lowest: CounterState | undefined;
    for (const state of this.#states.values())
      if (state.waiting.size > 0 && (lowest === undefined || state.counter < lowest.counter)) lowest = state;
    return lowest;
  }

  #state(account: string): CounterState {
    let state = this.#states.get(account);
    if (state === undefined) {
      state = { waiting: new Set(), counter: 0, running: 0 };
      this.#states.set(account, state);
    }
    return state;
  }
}
