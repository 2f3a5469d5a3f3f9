/**
 * Descriptors kept for when the process has none left. uWS's loop then turns without rest for each connection that it cannot
 * accept; with these given up it can accept them, and they are closed at once.
 */
import { closeSync, openSync } from 'node:fs';
import { systemClock, type Clock } from '../lib/clock.js';
import type { Log } from '../telemetry/logger.js';

/** Between two looks whether a descriptor can be opened, ms. */
const PROBE_MS = 1000;

/** What else opens some, such as a child that is forked, may take the first ones that are given up. */
const KEPT = 8;

/** `open` returns a descriptor, or undefined when there is none left; `close` takes one back. */
export interface Descriptors {
  open(): number | undefined;
  close(descriptor: number): void;
}

export class DescriptorReserve {
  readonly #clock: Clock;
  readonly #changed: (refusing: boolean) => void;
  readonly #descriptors: Descriptors;
  #kept: number[] = [];
  #refusing = false;
  #cancel: () => void = () => undefined;

  /** `changed` is called when connections are refused from now on, and when they are no more. */
  constructor(clock: Clock, changed: (refusing: boolean) => void, descriptors: Descriptors = devices) {
    this.#clock = clock;
    this.#changed = changed;
    this.#descriptors = descriptors;
    this.#kept = this.#take(KEPT);
    this.#probeLater();
  }

  /** New connections are to be closed at once. */
  get refusing(): boolean {
    return this.#refusing;
  }

  /** Idempotent. */
  close(): void {
    this.#cancel();
    this.#giveUp();
  }

  #probeLater(): void {
    this.#cancel = this.#clock.after(PROBE_MS, () => {
      this.#probe();
      this.#probeLater();
    });
  }

  #probe(): void {
    // One more than is kept, so that one is free afterwards.
    const more = this.#take(KEPT + 1 - this.#kept.length);
    this.#kept.push(...more);
    const spare = this.#kept.length > KEPT ? this.#kept.pop() : undefined;
    if (spare !== undefined) this.#descriptors.close(spare);
    if ((spare === undefined) !== this.#refusing) {
      this.#refusing = spare === undefined;
      this.#changed(this.#refusing);
    }
    if (this.#refusing) this.#giveUp();
  }

  /** As many as can be had. */
  #take(count: number): number[] {
    const taken: number[] = [];
    for (let i = 0; i < count; i++) {
      const descriptor = this.#descriptors.open();
      if (descriptor === undefined) break;
      taken.push(descriptor);
    }
    return taken;
  }

  #giveUp(): void {
    for (const descriptor of this.#kept.splice(0)) this.#descriptors.close(descriptor);
  }
}

/** The process's. */
export function keepDescriptors(log: Log): DescriptorReserve {
  return new DescriptorReserve(systemClock, (refusing) => {
    if (refusing) log.error('no descriptors left', { reason: 'new connections are refused until some are free' });
    else log.info('descriptors are free again');
  });
}

/** A device, since a disk may hang. */
const devices: Descriptors = {
  open: () => {
    try {
      return openSync('/dev/null', 'r');
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'EMFILE' || code === 'ENFILE') return undefined;
      throw error;
    }
  },
  close: (descriptor) => closeSync(descriptor),
};
