import type { Clock } from '../lib/clock.js';
import { IdMap } from '../lib/id-map.js';
import type { BacklogLimits } from './backlog.js';

/**
 * How long after the last exchange on a connection nothing can be left in uWS, ms. uWS closes a connection whose bytes find no
 * room for 10 s, and looks every 4 s. An open exchange may keep a connection open without a limit.
 */
const QUIET_MS = 20_000;

/** What callers of one address, and of all addresses, may leave unread of streams that ended: parts of the backlog's total. */
const ADDRESS_PART = 1 / 8;
const TOTAL_PART = 1 / 4;

/** Addresses with unread bytes, at most: some 8 MB. Past it the streams of further ones use backpressure at their ends. */
export const MOST_ADDRESSES = 16_384;

/** All addresses are checked at most this often, ms: there are as many as callers who left something unread. */
const SWEEP_MS = 1000;

/** An exchange that may be on a connection with unread bytes of earlier streams. */
export interface FollowedExchange {
  /** The connection was found to have sent everything, or it is closed, or the exchange has ended. Idempotent. */
  done(): void;
}

/**
 * Counts the bytes of ended streams that may still be unread. uWS reports what was read only of a stream that uses
 * backpressure, and not which connection a request comes from, so several streams could leave more and more bytes on one
 * kept connection. These bytes are therefore summed for each address. Past a bound the streams of the address use
 * backpressure at their ends, which shows that their connection has sent everything. After {@link QUIET_MS} of this, each
 * connection that had unread bytes was found empty, was closed by uWS, or has an exchange open that began before; once
 * those have used backpressure or ended too, the sum is released and streams may leave bytes unread again. So an address
 * that is never quiet, such as a gateway's, uses backpressure only for a part of the time.
 */
export class EndedStreams {
  readonly #clock: Clock;
  readonly #totalBytes: number;
  /** Those with unread bytes. */
  readonly #addresses = new Map<string, Address>();
  #lastId = 0;
  #bytes = 0;
  #sweptAt = -Infinity;
  #allProbedAt = -Infinity;

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
   * An exchange of this address begins. `probe`: makes it find out whether its connection has sent everything, if it can. Returns undefined
   * if no connection of the address has unread bytes.
   */
  follow(address: string, probe: () => void): FollowedExchange | undefined {
    const found = this.#find(address);
    if (found === undefined) return undefined;
    const id = ++this.#lastId;
    found.open.set(id, probe);
    return {
      done: () => {
        if (found.open.delete(id)) this.#ended(found, id);
      },
    };
  }

  /** Whether a stream of this address may end while up to `bytes` of it may be unread, which are then counted. */
  mayLeaveUnread(address: string, bytes: number): boolean {
    this.#sweep();
    const now = this.#clock.now();
    const known = this.#find(address);
    if (known?.probingSince !== undefined) return false;
    if (this.#bytes + bytes > this.#totalBytes * TOTAL_PART) {
      this.#probeAll(now);
      return false;
    }
    if (known === undefined && this.#addresses.size >= MOST_ADDRESSES) return false;
    if ((known?.bytes ?? 0) + bytes > this.#totalBytes * ADDRESS_PART) {
      if (known) known.probingSince = now;
      return false;
    }
    const found = known ?? new Address(address);
    if (known === undefined) this.#addresses.set(address, found);
    found.quietSince = now;
    found.bytes += bytes;
    this.#bytes += bytes;
    return true;
  }

  #probeAll(now: number): void {
    if (now - this.#allProbedAt < SWEEP_MS) return;
    this.#allProbedAt = now;
    for (const each of this.#addresses.values()) each.probingSince ??= now;
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
    else if (address.probingSince !== undefined && address.probingSince <= before && !address.isSuspected) {
      address.lastSuspect = this.#lastId;
      address.suspects = address.open.size;
      if (address.suspects === 0) this.#release(address);
      for (const probe of address.open.values()) probe();
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
  /** The `probe` functions of exchanges that began while there were such bytes, by an increasing number. */
  readonly open = new IdMap<() => void>();
  /** When the last of `open` was done, or the last stream left something. */
  quietSince = 0;
  /** Since when each of its streams uses backpressure at its end; undefined if they may leave bytes unread. */
  probingSince: number | undefined;
  /** Exchanges up to this number may be on a connection that still has unread bytes, and how many of them there are. */
  lastSuspect = 0;
  suspects = 0;

  constructor(name: string) {
    this.name = name;
  }

  get isSuspected(): boolean {
    return this.suspects > 0;
  }
}
