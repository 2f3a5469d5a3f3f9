import type { Clock } from '../lib/clock.js';
import { IdMap } from '../lib/id-map.js';
import type { BacklogLimits } from './backlog.js';

/**
 * How long after the last exchange on a connection nothing can be left in uWS, ms. uWS closes a connection whose bytes find no
 * room for 10 s, and looks every 4 s. An open exchange may keep a connection open without a limit.
 */
const QUIET_MS = 20_000;

/** What callers of one address may leave unread of streams that ended, and what all may: parts of the backlog's total. */
const ADDRESS_PART = 1 / 8;
const TOTAL_PART = 1 / 4;

/** How often all addresses are looked at, at most, ms: there are as many as callers who left something. */
const SWEEP_MS = 1000;

/** An exchange that may be on a connection with unread rests of earlier streams. */
export interface FollowedExchange {
  /** The connection was found to have sent everything, or it is closed, or the exchange has ended. Idempotent. */
  done(): void;
}

/**
 * The unread rests of streams that ended. uWS does not report what of a stream was read unless the stream asks, nor which
 * connection a request comes from, so what several streams leave on one kept connection would add up. What each address
 * left is therefore summed. Past a bound the streams of the address ask at their ends, which shows that a connection has sent
 * everything. After {@link QUIET_MS} of this, each connection that had a rest was found empty, was closed by uWS, or has an
 * exchange open that began before; once those have asked or ended too, the sum is released and streams may leave rests again.
 * So an address that is never quiet, as a gateway's, asks only for a part of the time.
 */
export class EndedStreams {
  readonly #clock: Clock;
  readonly #totalBytes: number;
  /** Those that left something. */
  readonly #addresses = new Map<string, Address>();
  #lastId = 0;
  #bytes = 0;
  #sweptAt = -Infinity;
  #allAskSince = -Infinity;

  constructor(clock: Clock, { totalBytes }: BacklogLimits) {
    this.#clock = clock;
    this.#totalBytes = totalBytes;
  }

  /** What may be unread in all, in bytes: never too little. */
  get bytes(): number {
    this.#sweep();
    return this.#bytes;
  }

  /**
   * An exchange of this address begins. `ask`: makes it find out whether its connection has sent everything, if it can. Undefined:
   * no connection of the address has a rest.
   */
  follow(address: string, ask: () => void): FollowedExchange | undefined {
    const found = this.#find(address);
    if (found === undefined) return undefined;
    const id = ++this.#lastId;
    found.open.set(id, ask);
    return {
      done: () => {
        if (found.open.delete(id)) this.#ended(found, id);
      },
    };
  }

  /** Whether a stream of this address may end while so many bytes of it may be unread; they are then counted. */
  mayLeave(address: string, bytes: number): boolean {
    this.#sweep();
    const now = this.#clock.now();
    const known = this.#find(address);
    if (known?.askingSince !== undefined) return false;
    if (this.#bytes + bytes > this.#totalBytes * TOTAL_PART) {
      this.#allAsk(now);
      return false;
    }
    if ((known?.bytes ?? 0) + bytes > this.#totalBytes * ADDRESS_PART) {
      if (known) known.askingSince = now;
      return false;
    }
    const found = known ?? new Address(address);
    if (known === undefined) this.#addresses.set(address, found);
    found.quietSince = now;
    found.bytes += bytes;
    this.#bytes += bytes;
    return true;
  }

  #allAsk(now: number): void {
    if (now - this.#allAskSince < SWEEP_MS) return;
    this.#allAskSince = now;
    for (const each of this.#addresses.values()) each.askingSince ??= now;
  }

  #ended(address: Address, id: number): void {
    if (address.open.size === 0) address.quietSince = this.#clock.now();
    if (id > address.lastSuspect) return;
    address.suspects -= 1;
    if (address.suspects === 0) this.#release(address);
  }

  #find(name: string): Address | undefined {
    const found = this.#addresses.get(name);
    if (found) this.#check(found, this.#clock.now());
    return this.#addresses.get(name);
  }

  #sweep(): void {
    const now = this.#clock.now();
    if (now - this.#sweptAt < SWEEP_MS) return;
    this.#sweptAt = now;
    for (const each of this.#addresses.values()) this.#check(each, now);
  }

  #check(address: Address, now: number): void {
    const before = now - QUIET_MS;
    if (address.open.size === 0 && address.quietSince <= before) this.#release(address);
    else if (address.askingSince !== undefined && address.askingSince <= before && !address.isSuspected) {
      address.lastSuspect = this.#lastId;
      address.suspects = address.open.size;
      if (address.suspects === 0) this.#release(address);
      for (const ask of address.open.values()) ask();
    }
  }

  #release(address: Address): void {
    if (this.#addresses.get(address.name) !== address) return;
    this.#addresses.delete(address.name);
    this.#bytes -= address.bytes;
  }
}

class Address {
  readonly name: string;
  /** Of streams that ended: what may still wait in uWS. */
  bytes = 0;
  /** By a number that grows: exchanges that began since there are such bytes, with how they ask. */
  readonly open = new IdMap<() => void>();
  /** When the last of `open` was done, or the last stream left something. */
  quietSince = 0;
  /** Since when each of its streams asks at its end; undefined: they may leave rests. */
  askingSince: number | undefined;
  /** Exchanges up to this number may be on a connection that still has a rest, and how many of them there are. */
  lastSuspect = 0;
  suspects = 0;

  constructor(name: string) {
    this.name = name;
  }

  get isSuspected(): boolean {
    return this.suspects > 0;
  }
}
