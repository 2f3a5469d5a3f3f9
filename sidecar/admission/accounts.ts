import { FairnessWindow } from './fairness-window.js';
import { Heap } from '../lib/heap.js';
import type { TenantClass } from './account-class.js';
import { Tenant } from './account.js';

/** Tenants that are remembered; past that the one that has been idle longest is forgotten, never one that waits or runs. */
export const MAX_TENANTS = 10_000;

/**
 * The tenants' accounts: who is active (waits or runs), what each has been charged.
 *
 * Nobody saves up a claim to seats: a tenant that gets in line is lifted to where the queue stands, and those that
 * cannot be seated yet are not in line. VTC lifts to the
 * lowest of those who wait; that alone leaves gaps while nobody waits, so this takes the highest of three: the lowest of
 * the others that are active; the virtual time of the last that was seated in its turn (start-time fair queuing, P. Goyal
 * et al., 1996), which a tenant that only ever runs a little would else fall behind; and, once all were idle, the highest
 * there was, so that no debt outlives the contention that it came from. None of the three is above the lowest of those
 * who wait already, so a lift puts nobody behind its turn.
 */
export class Tenants {
  readonly #byName = new Map<string, Tenant>();
  /** In the order in which they became idle. */
  readonly #idle = new Heap<Tenant>((a, b) => a.idleOrder < b.idleOrder);
  /** In no order. */
  readonly #running = new Heap<Tenant>(() => false);
  #lastIdle = 0;
  readonly #window = new FairnessWindow();
  #accruedAt = 0;
  /** No newcomer starts below it. */
  #floorMs = 0;
  /** Of those that became idle. */
  #highestMs = 0;

  /** Those who wait or run, lowest virtual time first. */
  readonly active = new Heap<Tenant>(lower);
  /** Those with somebody to seat, likewise. */
  readonly seatable = new Heap<Tenant>(lower);

  /** Tenants remembered. */
  get size(): number {
    return this.#byName.size;
  }

  /** Jain's index of the last whole window; undefined: fewer than two tenants had a backlog all through it. */
  get fairness(): number | undefined {
    return this.#window.index;
  }

  all(): Iterable<Tenant> {
    return this.#byName.values();
  }

  /**
   * The tenant of a request that comes, made if need be. The request's class is lifted if none of it was in line. Whatever
   * it asks for is accrued.
   */
  arriving(name: string, weight: number): Tenant {
    let tenant = this.#byName.get(name);
    if (tenant === undefined) {
      this.#forgetOne();
      this.#byName.set(name, (tenant = new Tenant(name)));
      this.#rest(tenant);
    }
    const arrived = tenant.classFor(weight);
    if (tenant.active.at < 0) tenant.weight = arrived.weight;
    if (!arrived.inLine) this.lift(tenant, arrived);
    return tenant;
  }

  /** A tenant that waits or runs, which is never forgotten. */
  known(name: string): Tenant {
    const tenant = this.#byName.get(name);
    if (tenant === undefined) throw new Error('a tenant was forgotten that waits or runs');
    return tenant;
  }

  /** Charges everybody for the seats held since the last call. Comes before every decision. */
  accrue(now: number): void {
    const passed = now - this.#accruedAt;
    this.#accruedAt = now;
    if (passed <= 0) return;
    this.#running.each((tenant) => {
      tenant.charge(passed);
      this.active.moved(tenant.active);
      this.seatable.moved(tenant.seatable);
    });
    this.#window.roll(now, this.active);
  }

  /** One of those with somebody to seat gets a seat. */
  turn(): void {
    this.#floorMs = Math.max(this.#floorMs, this.seatable.first?.virtualMs ?? 0);
  }

  /** `tenant` holds so many seats more or less for requests of this class. */
  hold(tenant: Tenant, of: TenantClass, seats: number): void {
    tenant.running += seats;
    of.running += seats;
    if (tenant.running === 0) this.#running.remove(tenant.holding);
    else if (tenant.holding.at < 0) this.#running.add(tenant.holding);
    this.stir(tenant);
  }

  /** Who waits or runs of `tenant` changed. */
  stir(tenant: Tenant): void {
    tenant.rank();
    this.active.moved(tenant.active);
    this.seatable.moved(tenant.seatable);
    const active = tenant.waiting + tenant.running > 0;
    if (active && tenant.active.at < 0) {
      this.#idle.remove(tenant.idle);
      this.active.add(tenant.active);
    } else if (!active && tenant.active.at >= 0) {
      this.active.remove(tenant.active);
      this.#highestMs = Math.max(this.#highestMs, tenant.virtualMs);
      if (this.active.size === 0) this.#floorMs = this.#highestMs;
      this.#rest(tenant);
    }
    const seatable = tenant.next !== undefined;
    if (seatable && tenant.seatable.at < 0) {
      this.seatable.add(tenant.seatable);
      tenant.backloggedSince = this.#accruedAt;
    } else if (!seatable && tenant.seatable.at >= 0) {
      this.seatable.remove(tenant.seatable);
      tenant.backloggedSince = undefined;
    }
  }

  /** To where the queue stands: before one of a class gets in line, where none of it was. */
  lift(tenant: Tenant, of: TenantClass): void {
    const lowest = this.active.firstBut(tenant.active)?.virtualMs ?? 0;
    tenant.lift(of, Math.max(lowest, this.#floorMs));
    this.active.moved(tenant.active);
    this.seatable.moved(tenant.seatable);
  }

  #forgetOne(): void {
    if (this.#byName.size < MAX_TENANTS) return;
    const longest = this.#idle.first;
    if (longest === undefined) return;
    this.#idle.remove(longest.idle);
    this.#byName.delete(longest.name);
  }

  #rest(tenant: Tenant): void {
    tenant.idleOrder = this.#lastIdle += 1;
    this.#idle.add(tenant.idle);
  }
}

/** Of two that were charged alike, whoever holds less now. */
function lower(a: Tenant, b: Tenant): boolean {
  return a.virtualMs === b.virtualMs ? a.rate < b.rate : a.virtualMs < b.virtualMs;
}
