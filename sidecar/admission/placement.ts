/**
 * Chooses the replica of which a request gets a seat, once it is the request's turn.
 *
 * Only replicas with a free seat that is long enough are considered, and of these only those with the shortest seats, so that
 * the long ones stay free for the requests that need them. Of these it takes the one with the highest
 *
 *     share of the prompt that it has - share of its seats that are busy - share of the wanted seats that it lacks
 *       - share of a token's time that the fastest one would save (replica-speeds.ts)
 *
 * So a conversation returns to the replica that has its previous turns. Prompts with a common beginning go to the replica that
 * has it until the others are that much less busy; then these compute it too. A replica whose tokens take twice as long as those
 * of the fastest counts as if half more of its seats were busy. Of equal replicas it takes the one of which a seat was granted
 * least recently, so that conversations spread over the saved state of all replicas.
 */
import { freeSeats, type Replica } from './replica-seats.js';

/** Replicas whose tokens take up to so many times as long count as equally fast: less than this may be chance. */
const SAME_SPEED_RATIO = 1.25;

/** The most that a slower replica counts as busier: a prompt of which it has nearly all then still goes to it. */
const MOST_SLOWNESS = 0.75;

/** Seats given elsewhere after which a slower replica counts as fast until it gets one: only its replies show that it is no longer slow. */
const PROBE_AFTER_GRANTS = 100;

/** What decides where a request is placed. */
export interface PlacementNeeds {
  /** Tokens that its seat must be able to hold. */
  readonly seatTokens: number;
  readonly promptTokens: number;
  /** Seats that it can use at once, all of one replica. */
  readonly seats: number;
}

/**
 * The index of the replica, or -1 if no free seat is long enough. `reusableTokens`: tokens of the prompt that a
 * replica need not evaluate (next-request.ts); it is not asked where there is no choice.
 */
export function place(
  replicas: readonly Replica[],
  needs: PlacementNeeds,
  reusableTokens: (replica: number) => number,
): number {
  let context = Infinity;
  let candidates = 0;
  let found = -1;
  for (let at = 0; at < replicas.length; at += 1) {
    const replica = replicas[at];
    if (replica === undefined || freeSeats(replica) === 0 || replica.contextPerSeat < needs.seatTokens) continue;
    if (replica.contextPerSeat > context) continue;
    candidates = replica.contextPerSeat < context ? 1 : candidates + 1;
    context = replica.contextPerSeat;
    found = at;
  }
  return candidates > 1 ? best(replicas, context, needs, reusableTokens) : found;
}

/** The best of the replicas that have a free seat of exactly this length. */
function best(
  replicas: readonly Replica[],
  context: number,
  needs: PlacementNeeds,
  reusableTokens: (replica: number) => number,
): number {
  let found = -1;
  let highest = -Infinity;
  let longestAgo = Infinity;
  const fastest = lowestRatio(replicas, context);
  replicas.forEach((replica, at) => {
    const free = freeSeats(replica);
    if (free === 0 || replica.contextPerSeat !== context) return;
    const held = needs.promptTokens > 0 ? Math.min(1, reusableTokens(at) / needs.promptTokens) : 0;
    const lacking = Math.max(0, needs.seats - free) / needs.seats;
    const worth = held - replica.busy / replica.seats - lacking - slowness(replica, fastest);
    if (worth < highest || (worth === highest && replica.grantedLast >= longestAgo)) return;
    found = at;
    highest = worth;
    longestAgo = replica.grantedLast;
  });
  return found;
}

/** Of the replicas that have a free seat of this length; Infinity where none is known. */
function lowestRatio(replicas: readonly Replica[], context: number): number {
  let fastest = Infinity;
  for (const replica of replicas) {
    if (replica.tokenTimeRatio === undefined || freeSeats(replica) === 0 || replica.contextPerSeat !== context)
      continue;
    fastest = Math.min(fastest, replica.tokenTimeRatio);
  }
  return fastest;
}

/** The share of a token's time that the fastest replica would save; 0 where that is not known, small, or to be learned again. */
function slowness({ tokenTimeRatio = 0, passedOver }: Replica, fastest: number): number {
  if (passedOver >= PROBE_AFTER_GRANTS || tokenTimeRatio <= SAME_SPEED_RATIO * fastest) return 0;
  return Math.min(1 - fastest / tokenTimeRatio, MOST_SLOWNESS);
}
