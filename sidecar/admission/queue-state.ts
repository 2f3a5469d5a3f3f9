import { classOf, type ServiceClass } from '../domain/service-class.js';
import { Line } from './ordered-list.js';
import type { Place } from './queued-request.js';
import type { ReleaseReason } from './seat-queue.js';
import type { TenantClass } from './account-class.js';
import type { Tenant } from './account.js';
import { Tenants } from './accounts.js';

/**
 * Who waits and who holds seats, entered for the queue and for the tenant at once, so that the two never differ. A place
 * that moves from waiting to a seat or back is entered where it goes before it is struck out where it was: its tenant is
 * not idle in between, so it is not lifted.
 */
export class Books {
  readonly tenants = new Tenants();
  /** Seats of the engine, and whether it is away. */
  seats: number;
  paused = false;
  /** How often the engine went away or came back. */
  breaks = 0;
  /** Leases ended, by how. */
  readonly released: Partial<Record<ReleaseReason | 'given-back', number>> = {};
  /** Their engine was lost: before all others, in the order of entering. */
  readonly #returned = new Line<Place>();
  readonly #waitingBy: Record<ServiceClass, number> = { interactive: 0, standard: 0, batch: 0 };
  #seatable = 0;
  #waiting = 0;
  #bytes = 0;
  #busy = 0;
  #now = 0;

  constructor(seats: number) {
    this.seats = seats;
  }

  /** The time up to which all is charged: that of the operation under way, from its first step to its last. */
  get now(): number {
    return this.#now;
  }

  /** Requests that wait. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Of these, those that could take a seat now. */
  get seatable(): number {
    return this.#seatable;
  }

  /** Those that wait by class. */
  get waitingBy(): Readonly<Record<ServiceClass, number>> {
    return this.#waitingBy;
  }

  /** Body bytes that they hold. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Seats held. */
  get busy(): number {
    return this.#busy;
  }

  /** Seats that nobody holds; none while the engine is away. */
  get free(): number {
    return this.paused ? 0 : Math.max(0, this.seats - this.#busy);
  }

  /** The first of the returned. */
  get returned(): Place | undefined {
    return this.#returned.first;
  }

  /** Someone who waits, seatable or not; undefined once all are gone. */
  get anyone(): Place | undefined {
    const { first } = this.#returned;
    if (first !== undefined || this.#waiting === 0) return first;
    let found: Place | undefined;
    this.tenants.active.each(({ classes }) => {
      for (const { line } of classes) found ??= line.first;
    });
    return found;
  }

  tenantOf({ entry }: Place): Tenant {
    return this.tenants.known(entry.tenant);
  }

  /** The requests of the same tenant and class. */
  classOf(place: Place): TenantClass {
    return this.tenantOf(place).classFor(place.entry.weight);
  }

  /** A lease ended. */
  count(how: ReleaseReason | 'given-back'): void {
    this.released[how] = (this.released[how] ?? 0) + 1;
  }

  /** Charges seat time up to `now`. */
  accrue(now: number): void {
    this.#now = now;
    this.tenants.accrue(now);
  }

  /** The engine went away, or came back. */
  pause(paused: boolean): void {
    this.paused = paused;
    this.breaks += 1;
  }

  /** Whether the engine was there all the time since `place` entered. */
  unbroken(place: Place): boolean {
    return !this.paused && place.breaks === this.breaks;
  }

  /** A newcomer. It cannot be seated yet. */
  enter(place: Place): void {
    place.breaks = this.breaks;
    const tenant = this.tenantOf(place);
    const of = tenant.classFor(place.entry.weight);
    of.line.insert(place);
    this.#inRoom(place, tenant, of, 1);
    this.#wait(place, tenant, 1);
  }

  /** It may be seated. */
  ready(place: Place): void {
    const tenant = this.tenantOf(place);
    const of = tenant.classFor(place.entry.weight);
    if (!of.inLine) this.tenants.lift(tenant, of);
    of.turns.add(place);
    this.#seatable += 1;
    this.tenants.stir(tenant);
  }

  /** One that had a seat waits again. */
  comeBack(place: Place): void {
    const tenant = this.tenantOf(place);
    this.#returned.insert(place);
    this.#seatable += 1;
    tenant.classFor(place.entry.weight).returned += 1;
    this.#wait(place, tenant, 1);
  }

  /** One that waited waits no more: for a seat, or for good. */
  leave(place: Place, to: 'seat' | 'nowhere'): void {
    const tenant = this.tenantOf(place);
    const of = tenant.classFor(place.entry.weight);
    const returned = place.line === this.#returned;
    const inTurns = place.turn.at >= 0;
    if (returned) of.returned -= 1;
    else this.#inRoom(place, tenant, of, -1);
    if (returned || inTurns) this.#seatable -= 1;
    if (inTurns && to === 'seat') {
      this.tenants.turn();
      of.turns.serve(place);
    } else of.turns.remove(place);
    if (inTurns && of.turns.head === undefined) of.pace.rest();
    place.line?.remove(place);
    this.#wait(place, tenant, -1);
  }

  /** `place` holds so many seats more, or less. */
  hold(place: Place, seats: number): void {
    place.seatMs += place.seats * (this.#now - place.seatsSince);
    place.seatsSince = this.#now;
    const tenant = this.tenantOf(place);
    if (place.seats === 0) tenant.leases += 1;
    place.seats += seats;
    if (place.seats === 0) tenant.leases -= 1;
    this.#busy += seats;
    this.tenants.hold(tenant, tenant.classFor(place.entry.weight), seats);
  }

  #inRoom({ entry }: Place, tenant: Tenant, of: TenantClass, sign: 1 | -1): void {
    tenant.inRoom += sign;
    tenant.bytes += sign * entry.bytes;
    of.bytes += sign * entry.bytes;
  }

  #wait(place: Place, tenant: Tenant, sign: 1 | -1): void {
    this.#waiting += sign;
    this.#waitingBy[classOf(place.entry.weight)] += sign;
    this.#bytes += sign * place.entry.bytes;
    tenant.waiting += sign;
    this.tenants.stir(tenant);
  }
}
