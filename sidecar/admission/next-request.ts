import type { Heap } from '../lib/heap.js';
import type { QueuedRequest } from './queued-request.js';
import type { Account } from './account.js';

/** A request is seated before its turn only if it shares at least so many tokens with what a replica has. */
const MIN_TOKENS = 256;

/** It must also share at least this part of its prompt. */
const MIN_SHARE = 0.1;

/** The most seat time that its account may be ahead of the passed one, as a share of the time of a request of the passed one. */
const ALLOWANCE = 0.25;

/** The same as a share of the longest wait, so that an account with requests of minutes is not passed for minutes. */
const ALLOWANCE_OF_WAIT = 0.1;

/** The most accounts whose first requests are compared for one seat. */
const CANDIDATES = 16;

/**
 * Tokens of a prompt, given by the hashes of its chunks, that this replica need not evaluate: a free sequence of it holds them, or
 * a prefix cache that it can restore from.
 */
export type ReusableTokens = (prefix: Uint32Array, replica: number) => number;

/** The times from which the allowance is computed, ms: of a request of an unknown account, and the longest wait. */
export interface Measures {
  readonly usualMs: number;
  readonly maxWaitMs: number;
}

/** Properties of requests that decide which one is chosen. */
export interface ChoiceRules {
  /** Tokens of a prompt that a replica with a free seat holds; undefined: not considered. */
  readonly mostReusable: ((prefix: Uint32Array) => number) | undefined;
  /** Whether its class is served newest first, and it has waited longer than wastes no seat time. */
  readonly isAged: (queued: QueuedRequest) => boolean;
  /** Whether a free seat is long enough for it. */
  readonly fits: (queued: QueuedRequest) => boolean;
}

/**
 * The request that is seated next: the first one of the account with the lowest virtual time, or the first one of another
 * account if that account is close behind and a replica has much of its prompt. Its account is charged as usual, so this changes
 * the order and not the shares: an account passes another by at most a quarter of a request's seat time, plus the request
 * that crosses this bound. A request for which no free seat is long enough keeps its turn and delays no other: the first
 * one, among all waiting requests, for which a seat is long enough goes before it.
 */
export function choose(
  seatable: Heap<Account>,
  measures: Measures,
  { mostReusable, isAged, fits }: ChoiceRules,
): QueuedRequest | undefined {
  const lowest = seatable.first;
  // Its class whose turn it is, and that class's next request.
  const head = lowest?.next?.next;
  if (!lowest || !head) return undefined;
  if (!fits(head)) return fitting(seatable, fits);
  if (seatable.size === 1) return head;
  if (isAged(head)) return fresher(seatable, { isAged, fits }) ?? head;
  if (mostReusable === undefined) return head;
  const { usualMs, maxWaitMs } = measures;
  const allowedMs = Math.min(ALLOWANCE * (lowest.holdMs ?? usualMs), ALLOWANCE_OF_WAIT * maxWaitMs);
  // Virtual time is seat time over weight. No weight is below 1, so this leaves out no account that the next line lets in.
  const near = seatable.front(({ virtualMs }) => virtualMs - lowest.virtualMs <= allowedMs, CANDIDATES);
  let best: QueuedRequest | undefined = head;
  let most = 0;
  for (const { next, virtualMs, weight } of near) {
    if ((virtualMs - lowest.virtualMs) * weight > allowedMs) continue;
    const queued = next?.next;
    const shared = queued && fits(queued) ? worth(queued, mostReusable) : 0;
    if (shared <= most) continue;
    most = shared;
    best = queued;
  }
  return best;
}

/** The head of the account with the lowest virtual time whose head did not wait too long; undefined: none of the first is such. */
function fresher(
  seatable: Heap<Account>,
  { isAged, fits }: Pick<ChoiceRules, 'isAged' | 'fits'>,
): QueuedRequest | undefined {
  let found: QueuedRequest | undefined;
  let lowest = Infinity;
  for (const { next, virtualMs } of seatable.front(() => true, CANDIDATES)) {
    const queued = next?.next;
    if (queued === undefined || virtualMs >= lowest || isAged(queued) || !fits(queued)) continue;
    found = queued;
    lowest = virtualMs;
  }
  return found;
}

/** The first request that a free seat is long enough for, of the account with the lowest virtual time that has one. */
function fitting(seatable: Heap<Account>, fits: ChoiceRules['fits']): QueuedRequest | undefined {
  let found: QueuedRequest | undefined;
  let lowest = Infinity;
  seatable.each((account) => {
    if (account.virtualMs >= lowest) return;
    const queued = account.first(fits);
    if (queued === undefined) return;
    found = queued;
    lowest = account.virtualMs;
  });
  return found;
}

/** Tokens saved by seating it now; 0 where that is not enough to count. */
function worth({ needs }: QueuedRequest, mostReusable: (prefix: Uint32Array) => number): number {
  if (needs?.prefix === undefined || needs.promptTokens < MIN_TOKENS) return 0;
  const shared = mostReusable(needs.prefix);
  return shared >= Math.max(MIN_TOKENS, MIN_SHARE * needs.promptTokens) ? shared : 0;
}
