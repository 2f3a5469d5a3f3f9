import type { Account } from './account.js';
import { choose, type Measures, type ReusableTokens } from './next-request.js';
import type { Overload } from './overload.js';
import { place } from './placement.js';
import type { QueuedRequest } from './queued-request.js';
import type { QueueState } from './queue-state.js';

/** Chooses which request gets the next seat, and of which replica. */
export class Seating {
  readonly #state: QueueState;
  readonly #reusableTokens: ReusableTokens | undefined;
  /** The most tokens of a prompt that one of the replicas with a free seat has. */
  readonly #mostReusable: ((prefix: Uint32Array) => number) | undefined;
  readonly #isAged: (queued: QueuedRequest) => boolean;
  readonly #fits: (queued: QueuedRequest) => boolean;

  /** `reusableTokens`: the tokens of a prompt that a replica has; undefined: they are not considered. */
  constructor(state: QueueState, overload: Overload, reusableTokens: ReusableTokens | undefined) {
    this.#state = state;
    this.#reusableTokens = reusableTokens;
    this.#mostReusable = reusableTokens && ((prefix) => this.#most(prefix, reusableTokens));
    this.#isAged = (queued) => overload.isAged(queued);
    this.#fits = (queued) => state.replicas.holds(seatTokens(queued));
  }

  /** The next request, with its replica set; undefined: no waiting request can take a free seat. */
  next(measures: Measures): QueuedRequest | undefined {
    const { replicas, accounts } = this.#state;
    if (replicas.free === 0) return undefined;
    const queued =
      this.#state.firstReturned(this.#fits) ??
      choose(accounts.seatable, measures, { mostReusable: this.#mostReusable, isAged: this.#isAged, fits: this.#fits });
    if (queued === undefined) return undefined;
    queued.replica = this.#place(queued);
    return this.#longer(queued, this.#state.accountOf(queued)) ?? queued;
  }

  #place({ needs, request }: QueuedRequest): number {
    const { replicas } = this.#state;
    const promptTokens = needs?.promptTokens ?? 0;
    const wants = { seatTokens: needs?.seatTokens ?? 0, promptTokens, seats: request.seatsWanted };
    return place(replicas.all, wants, (at) => (needs?.prefix && this.#reusableTokens?.(needs.prefix, at)) ?? 0);
  }

  /**
   * `queued` would take a seat that is longer than it needs, because the shorter ones are busy: a request of the same
   * account that needs such a seat is then seated first. Between accounts seat time alone decides.
   */
  #longer(queued: QueuedRequest, account: Account): QueuedRequest | undefined {
    const { replicas } = this.#state;
    const context = replicas.all[queued.replica]?.contextPerSeat ?? 0;
    const shorter = replicas.shorterThan(context);
    if (shorter === 0 || seatTokens(queued) > shorter) return undefined;
    const longer = account.first((other) => seatTokens(other) > shorter && this.#fits(other));
    if (longer !== undefined) longer.replica = this.#place(longer);
    return longer;
  }

  #most(prefix: Uint32Array, reusableTokens: ReusableTokens): number {
    const { replicas } = this.#state;
    let most = 0;
    for (let at = 0; at < replicas.all.length; at += 1) {
      if (replicas.freeOf(at) > 0) most = Math.max(most, reusableTokens(prefix, at));
    }
    return most;
  }
}

/** Tokens that a request's seat must be able to hold; 0: any seat will do. */
function seatTokens({ needs }: QueuedRequest): number {
  return needs?.seatTokens ?? 0;
}
