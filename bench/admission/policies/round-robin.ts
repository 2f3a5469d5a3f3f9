import type { Policy } from './door.js';
import { ReferenceQueue, type Discipline, type Waiting } from './reference-queue.js';

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
