import type { Clock } from '../../../sidecar/lib/clock.js';
import type { Policy } from './door.js';
import { ReferenceQueue, type Discipline, type Waiting } from './reference-queue.js';

/**
 * The virtual token counter (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024), algorithm 2, with a
 * time to live. Every seat makes tokens at the same pace here, so that a counter of tokens is one of seat time: its
 * prices are exact, which flatters it.
 */
export const vtc: Policy = {
  name: 'VTC with TTL',
  open: (setting) => new ReferenceQueue(setting, new Counters(setting.clock), { ttlMs: setting.patienceMs }),
};

interface Account {
  readonly waiting: Set<Waiting>;
  counter: number;
  running: number;
}

class Counters implements Discipline {
  readonly #clock: Clock;
  readonly #accounts = new Map<string, Account>();
  #chargedAt = 0;
  /** Whose queue became empty last. */
  #lastToLeave: Account | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(waiting: Waiting): void {
    this.#charge();
    const account = this.#account(waiting.tenant);
    if (account.waiting.size === 0) {
      const floor = this.#lowest()?.counter ?? this.#lastToLeave?.counter ?? 0;
      account.counter = Math.max(account.counter, floor);
    }
    account.waiting.add(waiting);
  }

  take(): Waiting | undefined {
    this.#charge();
    const account = this.#lowest();
    if (account === undefined) return undefined;
    const [first] = account.waiting;
    if (first !== undefined) this.#leave(account, first);
    account.running += 1;
    return first;
  }

  remove(waiting: Waiting): void {
    this.#leave(this.#account(waiting.tenant), waiting);
  }

  ended(tenant: string): void {
    this.#charge();
    this.#account(tenant).running -= 1;
  }

  #leave(account: Account, waiting: Waiting): void {
    account.waiting.delete(waiting);
    if (account.waiting.size === 0) this.#lastToLeave = account;
  }

  /** As tokens come, not at the end. */
  #charge(): void {
    const ms = this.#clock.now() - this.#chargedAt;
    this.#chargedAt = this.#clock.now();
    if (ms > 0) for (const account of this.#accounts.values()) account.counter += account.running * ms;
  }

  #lowest(): Account | undefined {
    let lowest: Account | undefined;
    for (const account of this.#accounts.values())
      if (account.waiting.size > 0 && (lowest === undefined || account.counter < lowest.counter)) lowest = account;
    return lowest;
  }

  #account(tenant: string): Account {
    let account = this.#accounts.get(tenant);
    if (account === undefined) {
      account = { waiting: new Set(), counter: 0, running: 0 };
      this.#accounts.set(tenant, account);
    }
    return account;
  }
}
