interface Count {
  waiting: number;
  running: number;
}

/** Requests waiting and seats held, per tenant. A tenant with neither is forgotten, so the map is bounded by the queue. */
export class TenantCounts {
  readonly #counts = new Map<string, Count>();

  add(tenant: string, waiting: number, running: number): void {
    const count = this.#counts.get(tenant);
    if (count === undefined) {
      this.#counts.set(tenant, { waiting, running });
      return;
    }
    count.waiting += waiting;
    count.running += running;
    if (count.waiting === 0 && count.running === 0) this.#counts.delete(tenant);
  }

  list(): { tenant: string; waiting: number; running: number }[] {
    return Array.from(this.#counts, ([tenant, { waiting, running }]) => ({ tenant, waiting, running }));
  }
}
