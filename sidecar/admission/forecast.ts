import { HoldTime } from './hold-time.js';
import type { Place } from './place.js';
import type { ReleaseReason } from './seat-queue.js';
import type { Tenant } from './tenant.js';
import type { Tenants } from './tenants.js';

/** Taken for what a request needs before any has ended, ms. Only for Retry-After: nobody is refused by it. */
const FIRST_GUESS_MS = 1000;

/** Leases that say how long a request holds a seat; the others ended before their time. */
const TELLING: ReadonlySet<ReleaseReason> = new Set(['done', 'cancelled', 'deadline']);

/** A wait shorter than this share of what the seat was held is not what made a reply late. */
const NOTEWORTHY = 0.1;

/** How a lease ended. */
export interface Ending {
  readonly reason: ReleaseReason;
  /** From its first seat to its end, ms. */
  readonly heldMs: number;
  /** The engine was there all the time since its request entered. */
  readonly unbroken: boolean;
}

/** Says how long a request would wait, how long it may, and when to come back. Learns from those that end. */
export class Forecast {
  readonly #tenants: Tenants;
  readonly #maxWaitMs: number;
  /** Of all tenants together, for those that are not known yet. */
  readonly #hold = new HoldTime();
  readonly #wall = new HoldTime();

  constructor(tenants: Tenants, maxWaitMs: number) {
    this.#tenants = tenants;
    this.#maxWaitMs = maxWaitMs;
  }

  /** Whether anything can be foretold: a lease has ended. */
  get knows(): boolean {
    return this.#hold.meanMs !== undefined;
  }

  /** What a request takes of a tenant that is not known yet, ms. */
  get usualMs(): number {
    return this.#hold.meanMs ?? FIRST_GUESS_MS;
  }

  /**
   * A lease of `tenant` ended. One whose wait left it too little time, so that its deadline cut it short, was let in for
   * nothing. It counts as two that waited in vain: it took its seat from others besides.
   */
  ended(place: Place, tenant: Tenant, { reason, heldMs, unbroken }: Ending): void {
    if (!TELLING.has(reason)) return;
    for (const { hold, wall } of [tenant, { hold: this.#hold, wall: this.#wall }]) {
      hold.observe(place.seatMs);
      wall.observe(heldMs);
    }
    const waited = place.waitedMs > 0 && place.waitedMs >= NOTEWORTHY * heldMs;
    if (reason !== 'deadline' || !unbroken || !waited) return;
    this.waited(place, tenant, true);
    this.waited(place, tenant, true);
  }

  /**
   * How long one more request of `tenant` would wait were it to come now, ms, where no seat is free for it (Ŵ).
   *
   * Before it come its own tenant's requests and, of every other tenant, what that is owed until then: no more than it
   * has waiting, and no more than its weight's share while the newcomer's tenant is served its own. All that is worked
   * off by the seats at once, the first of which comes free when one of those who run ends. But no less than the
   * pace at which its tenant is given seats now, unless it is alone: others will come who do not wait yet.
   * O(active tenants).
   */
  waitMs(tenant: Tenant, weight: number, seats: number): number {
    const { usualMs } = this;
    const hold = tenant.hold.meanMs ?? usualMs;
    const own = tenant.waiting * hold;
    let ahead = own;
    let running = 0;
    this.#tenants.active.each((other) => {
      const otherHold = other.hold.meanMs ?? usualMs;
      running += other.leases * otherHold;
      if (other === tenant || other.waiting === 0) return;
      const lead = Math.max(0, tenant.virtualMs - other.virtualMs);
      ahead += Math.min(other.waiting * otherHold, other.weight * ((own + hold) / weight + lead));
    });
    const atOnce = Math.max(1, seats);
    const foretold = (ahead + running / atOnce) / atOnce;
    const alone = this.#tenants.active.firstBut(tenant.active) === undefined;
    const paced = alone ? 0 : tenant.pace.waitMs(tenant.waiting);
    return tenant.calibration * Math.max(foretold, paced);
  }

  /** How long a request may wait and still be of use, ms (B). */
  budgetMs(tenant: Tenant, now: number, deadlineAt = Infinity): number {
    const untilTooLate = deadlineAt - now - (tenant.wall.meanMs ?? this.#wall.meanMs ?? 0);
    return Math.max(0, Math.min(this.#maxWaitMs, untilTooLate));
  }

  /** A wait of `place` ended with a seat, or in vain. What nobody had to wait for says nothing of predictions. */
  waited(place: Place, tenant: Tenant, inVain: boolean): void {
    if (place.predictedMs === undefined) return;
    if (inVain) tenant.waitedInVain();
    else if (place.waitedMs > 0) tenant.waitedWell();
  }
}
