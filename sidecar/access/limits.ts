/**
 * Limits of one key: how many requests at once, and how many in any 60 seconds.
 *
 *     take ──> held ──end(true):  it ran────────> counts until 60 s after it was taken
 *        │        └───end(false): it was refused──> as if it had never come
 *        └──> limited: counted nowhere
 *
 * A request holds its place from right after the key until its response is over. It counts in the minute as soon as it is
 * taken, since a count at the end would let in any number at once; what is refused later is taken out again.
 *
 * Keys are told apart, not accounts: a key that is rotated begins anew, and so does every key after a restart. Sidecars
 * do not share what they count.
 */
import type { Clock } from '../lib/clock.js';
import { SlidingWindow } from './window.js';

/** What is counted together: both decision routes are one group. */
export const LIMIT_GROUPS = ['decisions', 'chat', 'models'] as const;
export type LimitGroup = (typeof LIMIT_GROUPS)[number];

/** 0: no limit. */
export interface Limit {
  /** Requests in flight at once. */
  readonly inFlight: number;
  /** Requests in any 60 seconds. */
  readonly perMinute: number;
}

/** A key's own limits; what it leaves out is as configured. */
export type KeyLimits = Readonly<Partial<Record<LimitGroup, Partial<Limit>>>>;

/** Whose limits. */
export interface Limited {
  readonly account: string;
  readonly keyId: string;
  readonly limits?: KeyLimits;
}

/** What a request holds of its key's limits. Whoever has it must end it. */
export interface Place {
  /** The response is over. `ran`: it counts in its minute; otherwise it was refused. Only the first call counts. */
  end(ran: boolean): void;
}

export type Taken =
  | { readonly kind: 'taken'; readonly place: Place }
  | {
      readonly kind: 'limited';
      readonly by: keyof Limit;
      /** When a request is let in if no other of the key comes before it; for those in flight a guess. */
      readonly retryAfterMs: number;
    };

const MINUTE_MS = 60_000;

/** When one of the requests in flight is over is not known; a second is what clients wait by themselves. */
const IN_FLIGHT_RETRY_MS = 1000;

/** Keys that each request looks at to forget them: two for each that can be new keep the map from growing. */
const FORGET_STEPS = 2;

/** What limits nothing. */
const FREE: Taken = { kind: 'taken', place: { end: () => undefined } };

interface Usage {
  inFlight: number;
  readonly minute: SlidingWindow;
}

export class RequestLimits {
  readonly #clock: Clock;
  readonly #defaults: Readonly<Record<LimitGroup, Limit>>;
  /** By group and key, those first that were looked at longest ago. */
  readonly #usage = new Map<string, Usage>();

  /** `defaults`: for keys without limits of their own. */
  constructor(clock: Clock, defaults: Readonly<Record<LimitGroup, Limit>>) {
    this.#clock = clock;
    this.#defaults = defaults;
  }

  /** Keys, by group, that are remembered: those of the last minute or in flight, and for a while some more. */
  get size(): number {
    return this.#usage.size;
  }

  /** Takes a place for a request of this key, or says how long to wait for one. */
  take({ account, keyId, limits }: Limited, group: LimitGroup): Taken {
    const { inFlight, perMinute } = { ...this.#defaults[group], ...limits?.[group] };
    if (inFlight === 0 && perMinute === 0) return FREE;
    this.#forget();
    const now = this.#clock.now();
    const usage = this.#usageOf(JSON.stringify([group, account, keyId]));
    const waitMs = perMinute === 0 ? 0 : usage.minute.waitUntilBelow(perMinute, now);
    if (waitMs > 0) return { kind: 'limited', by: 'perMinute', retryAfterMs: Math.ceil(waitMs) };
    if (inFlight > 0 && usage.inFlight >= inFlight) {
      return { kind: 'limited', by: 'inFlight', retryAfterMs: IN_FLIGHT_RETRY_MS };
    }
    return { kind: 'taken', place: hold(usage, now, perMinute > 0) };
  }

  #usageOf(id: string): Usage {
    const known = this.#usage.get(id);
    if (known) return known;
    const usage: Usage = { inFlight: 0, minute: new SlidingWindow(MINUTE_MS) };
    this.#usage.set(id, usage);
    return usage;
  }

  /** Forgets keys that count nothing any more, a few at a time, in turn. */
  #forget(): void {
    const now = this.#clock.now();
    for (let step = 0; step < FORGET_STEPS; step++) {
      const first = this.#usage.entries().next();
      if (first.done === true) return;
      const [id, usage] = first.value;
      this.#usage.delete(id);
      if (usage.inFlight > 0 || usage.minute.countAt(now) > 0) this.#usage.set(id, usage);
    }
  }
}

/** `counts`: no stamp is kept where there is no limit by the minute, which would be without bound. */
function hold(usage: Usage, now: number, counts: boolean): Place {
  const stamp = counts ? usage.minute.add(now) : undefined;
  usage.inFlight++;
  let over = false;
  return {
    end: (ran) => {
      if (over) return;
      over = true;
      usage.inFlight--;
      if (!ran && stamp) usage.minute.remove(stamp);
    },
  };
}
