/**
 * Numbers of the accounts that one loop reads for each account that waits or runs, one array for each quantity. In objects
 * they lie on seven cache lines an account, since V8 keeps each number that changes and is no small integer on its own;
 * here a thousand accounts take 40 KB, and a loop over them reads them in sequence.
 *
 * An account has a slot from when it is made until it is forgotten. `active` lists the slots of those that wait or run.
 */

/** Slots at first; doubled when all are taken. */
const FIRST_SLOTS = 64;

export class AccountColumns {
  /** Rank among accounts, ms. */
  virtualMs = new Float64Array(FIRST_SLOTS);
  /** Of the class that it is ranked by. */
  weight = new Float64Array(FIRST_SLOTS);
  /** Seat-milliseconds that one request takes; NaN: none has ended. */
  holdMs = new Float64Array(FIRST_SLOTS);
  /** Requests that wait. */
  waiting = new Int32Array(FIRST_SLOTS);
  /** Requests that hold seats. */
  leases = new Int32Array(FIRST_SLOTS);
  /** Classes that it ever used. */
  classes = new Uint8Array(FIRST_SLOTS);
  /** Slots of those that wait or run, in no order; only the first `activeCount` count. */
  active = new Int32Array(FIRST_SLOTS);
  activeCount = 0;
  /** Position in `active`, or -1. */
  #activeAt = new Int32Array(FIRST_SLOTS).fill(-1);
  #taken = 0;
  readonly #free: number[] = [];

  /** A slot whose numbers are those of a new account. */
  take(): number {
    const slot = this.#free.pop() ?? this.#taken++;
    if (slot === this.active.length) this.#grow();
    this.virtualMs[slot] = 0;
    this.weight[slot] = 1;
    this.holdMs[slot] = NaN;
    this.waiting[slot] = 0;
    this.leases[slot] = 0;
    this.classes[slot] = 0;
    this.#activeAt[slot] = -1;
    return slot;
  }

  /** The account is forgotten: its slot is another one's from now on. It must not be active. */
  release(slot: number): void {
    this.#free.push(slot);
  }

  /** The account waits or runs from now on, or does neither. */
  setActive(slot: number, active: boolean): void {
    const at = this.#activeAt[slot] ?? -1;
    if (active === at >= 0) return;
    if (active) {
      this.#activeAt[slot] = this.activeCount;
      this.active[this.activeCount++] = slot;
      return;
    }
    const last = this.active[--this.activeCount] ?? 0;
    this.active[at] = last;
    this.#activeAt[last] = at;
    this.#activeAt[slot] = -1;
  }

  #grow(): void {
    this.virtualMs = doubled(this.virtualMs);
    this.weight = doubled(this.weight);
    this.holdMs = doubled(this.holdMs);
    this.waiting = doubled(this.waiting);
    this.leases = doubled(this.leases);
    this.classes = doubled(this.classes);
    this.active = doubled(this.active);
    this.#activeAt = doubled(this.#activeAt);
  }
}

type Column = Float64Array | Int32Array | Uint8Array;

/** A copy with twice the room. */
function doubled<C extends Column>(column: C): C {
  const copy = new (column.constructor as new (length: number) => C)(2 * column.length);
  copy.set(column);
  return copy;
}
