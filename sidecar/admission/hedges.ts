import type { QueuedRequest } from './queued-request.js';

/**
 * A caller that hedges sends a request and one or two copies of it. A larger number of equal requests is a load test or
 * a batch.
 */
const MOST_ALIKE = 3;

/** A caller that disconnected so soon after a copy was answered did so because of that, ms. */
const AFTER_ANSWER_MS = 1000;

/** Requests that are alike. */
interface Alike {
  underWay: number;
  answeredAt: number;
}

/**
 * Requests of one account with the same body that are in progress at once. A caller who ends such a request early may
 * have the answer of its copy, so the end shows no patience. Bounded by the requests in progress.
 */
export class Hedges {
  /** Not a Map, since entries come and go with requests (lib/id-map.ts). */
  readonly #alike: Record<string, Alike> = {};

  /** A request entered. */
  entered({ key }: QueuedRequest): void {
    if (key === undefined) return;
    const alike = (this.#alike[key] ??= { underWay: 0, answeredAt: -Infinity });
    alike.underWay += 1;
  }

  /** The caller has got what it waited for. */
  answered({ key }: QueuedRequest, now: number): void {
    const alike = key === undefined ? undefined : this.#alike[key];
    if (alike !== undefined) alike.answeredAt = now;
  }

  /** Whether a caller that disconnects now may do so because a copy of its request was answered. */
  mayEnd({ key, enteredAt }: QueuedRequest, now: number): boolean {
    const alike = key === undefined ? undefined : this.#alike[key];
    if (alike === undefined || alike.underWay > MOST_ALIKE) return false;
    return alike.answeredAt >= enteredAt && now - alike.answeredAt <= AFTER_ANSWER_MS;
  }

  /** The request has ended. */
  over({ key }: QueuedRequest): void {
    const alike = key === undefined ? undefined : this.#alike[key];
    if (key === undefined || alike === undefined) return;
    alike.underWay -= 1;
    if (alike.underWay === 0) Reflect.deleteProperty(this.#alike, key);
  }
}
