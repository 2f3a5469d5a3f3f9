import type { Clock } from '../../../sidecar/lib/clock.js';
import type { Policy } from './door.js';
import { ReferenceQueue, type Discipline, type Waiting } from './reference-queue.js';

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
