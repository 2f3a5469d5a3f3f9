import type { Clock } from '../lib/clock.js';
import type { BacklogLimits } from './backlog.js';

/**
 * How long after the last write of an address' streams nothing of them can be left in uWS, ms. It closes a connection whose
 * bytes find no room for 10 s, and looks every 4 s.
 */
const QUIET_MS = 20_000;

/** What callers of one address may leave unread of streams that ended, and what all may: parts of the backlog's total. */
const ADDRESS_PART = 1 / 8;
const TOTAL_PART = 1 / 4;

interface Address {
  readonly name: string;
  /** Of streams that ended: what may still wait in uWS. */
  bytes: number;
  /** Streams that have not ended. Each write of one starts uWS's clock anew for what the streams before it left. */
  open: number;
  quietSince: number;
}

/** One stream's part, from its begin to its end. */
export interface EndingStream {
  /** Whether it may end while so many bytes of it may be unread; they are then counted. */
  mayLeave(bytes: number): boolean;
  /** It has ended. Idempotent. */
  close(): void;
}

/**
 * The unread rests of streams that ended. uWS does not say what of a stream was read unless the stream asks, nor which
 * connection a request comes from, so what several streams leave on one kept connection would add up. What each address
 * left is therefore summed until its callers have been quiet for {@link QUIET_MS}; past a bound a stream asks at its end.
 */
export class EndedStreams {
  readonly #clock: Clock;
  readonly #totalBytes: number;
  readonly #busy = new Map<string, Address>();
  /** Addresses without open streams that left bytes, the longest quiet first. */
  readonly #quiet = new Map<string, Address>();
  #bytes = 0;

  constructor(clock: Clock, { totalBytes }: BacklogLimits) {
    this.#clock = clock;
    this.#totalBytes = totalBytes;
  }

  /** What may be unread in all, in bytes: never too little. */
  get bytes(): number {
    this.#forget();
    return this.#bytes;
  }

  /** A stream of this address begins. */
  open(address: string): EndingStream {
    this.#forget();
    const found = this.#busy.get(address) ??
      this.#quiet.get(address) ?? { name: address, bytes: 0, open: 0, quietSince: 0 };
    this.#quiet.delete(address);
    this.#busy.set(address, found);
    found.open += 1;
    let closed = false;
    return {
      mayLeave: (bytes) => this.#mayLeave(found, bytes),
      close: () => {
        if (!closed) this.#close(found);
        closed = true;
      },
    };
  }

  #mayLeave(address: Address, bytes: number): boolean {
    this.#forget();
    if (address.bytes + bytes > this.#totalBytes * ADDRESS_PART) return false;
    if (this.#bytes + bytes > this.#totalBytes * TOTAL_PART) return false;
    address.bytes += bytes;
    this.#bytes += bytes;
    return true;
  }

  #close(address: Address): void {
    address.open -= 1;
    if (address.open > 0) return;
    this.#busy.delete(address.name);
    if (address.bytes === 0) return;
    address.quietSince = this.#clock.now();
    this.#quiet.set(address.name, address);
  }

  #forget(): void {
    const before = this.#clock.now() - QUIET_MS;
    for (const [name, { bytes, quietSince }] of this.#quiet) {
      if (quietSince > before) return;
      this.#quiet.delete(name);
      this.#bytes -= bytes;
    }
  }
}
