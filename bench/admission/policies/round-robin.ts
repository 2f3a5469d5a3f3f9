import type { Policy } from './door.js';
import { ReferenceQueue, type Discipline, type Waiting } from './reference-queue.js';

/** One request of each tenant in turn, however long it is; whoever waited too long is dropped. */
export const roundRobin: Policy = {
  name: 'round robin with TTL',
  open: (setting) => new ReferenceQueue(setting, new Turns(), { ttlMs: setting.patienceMs }),
};

class Turns implements Discipline {
  /** In the order of their turns; only who waits has one. */
  readonly #tenants = new Map<string, Set<Waiting>>();

  add(waiting: Waiting): void {
    const own = this.#tenants.get(waiting.tenant);
    if (own === undefined) this.#tenants.set(waiting.tenant, new Set([waiting]));
    else own.add(waiting);
  }

  take(): Waiting | undefined {
    const [turn] = this.#tenants;
    if (turn === undefined) return undefined;
    const [tenant, own] = turn;
    const [first] = own;
    if (first !== undefined) own.delete(first);
    this.#tenants.delete(tenant);
    if (own.size > 0) this.#tenants.set(tenant, own);
    return first;
  }

  remove(waiting: Waiting): void {
    const own = this.#tenants.get(waiting.tenant);
    own?.delete(waiting);
    if (own?.size === 0) this.#tenants.delete(waiting.tenant);
  }
}
