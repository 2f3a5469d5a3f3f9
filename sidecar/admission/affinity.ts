import type { Heap } from '../lib/heap.js';
import type { QueuedRequest } from './queued-request.js';
import type { Account } from './account.js';

/** Less than this many tokens shared is not worth a turn. */
const MIN_TOKENS = 256;

/** Nor is less than this share of the prompt. */
const MIN_SHARE = 0.1;

/** How much seat time an account may be ahead by and still go first, as a share of what the one who is passed takes. */
const ALLOWANCE = 0.25;

/** And as a share of the longest wait: who takes seats for minutes must not be passed for minutes. */
const ALLOWANCE_OF_WAIT = 0.1;

/** Accounts whose heads are looked at for one seat. */
const CANDIDATES = 16;

/** Tokens of a prompt, given by the hashes of its chunks, that a free sequence of this replica of the engine holds already. */
export type Shares = (prefix: Uint32Array, replica: number) => number;

/** Times that the allowance is measured by, ms: what a request takes of an account not known yet, and the longest wait. */
export interface Measures {
  readonly usualMs: number;
  readonly maxWaitMs: number;
}

/** What is asked of requests while one is chosen. */
export interface Asked {
  /** Tokens of a prompt that a replica with a free seat holds; undefined: that plays no part. */
  readonly shares: ((prefix: Uint32Array) => number) | undefined;
  /** Whether it has waited too long for its caller to be there still. */
  readonly aged: (queued: QueuedRequest) => boolean;
  /** Whether a free seat is long enough for it. */
  readonly fits: (queued: QueuedRequest) => boolean;
}

/**
 * Whose turn it is. The account with the lowest virtual time; but another's head goes first when that account stands close
 * behind and a free sequence holds much of its prompt. Its account is charged as ever, so this moves turns, not shares:
 * each account passes another by a quarter of a request's seat time at most, and by the request that crosses that line.
 * A head that no free seat is long enough for keeps its turn and blocks no other: the first request for which one is goes
 * before it, which is looked for among all who wait.
 */
export function choose(
  seatable: Heap<Account>,
  measures: Measures,
  { shares, aged, fits }: Asked,
): QueuedRequest | undefined {
  const lowest = seatable.first;
  const head = lowest?.next?.next;
  if (!lowest || !head) return undefined;
  if (!fits(head)) return fitting(seatable, fits);
  if (seatable.size === 1) return head;
  if (aged(head)) return fresher(seatable, { aged, fits }) ?? head;
  if (shares === undefined) return head;
  const { usualMs, maxWaitMs } = measures;
  const allowedMs = Math.min(ALLOWANCE * (lowest.holdMs ?? usualMs), ALLOWANCE_OF_WAIT * maxWaitMs);
  // Virtual time is seat time over weight. No weight is below 1, so this leaves out no account that the next line lets in.
  const near = seatable.front(({ virtualMs }) => virtualMs - lowest.virtualMs <= allowedMs, CANDIDATES);
  let best: QueuedRequest | undefined = head;
  let most = 0;
  for (const { next, virtualMs, weight } of near) {
    if ((virtualMs - lowest.virtualMs) * weight > allowedMs) continue;
    const queued = next?.next;
    const shared = queued && fits(queued) ? worth(queued, shares) : 0;
    if (shared <= most) continue;
    most = shared;
    best = queued;
  }
  return best;
}

/** The head of the account with the lowest virtual time whose head did not wait too long; undefined: none of the first is such. */
function fresher(seatable: Heap<Account>, { aged, fits }: Pick<Asked, 'aged' | 'fits'>): QueuedRequest | undefined {
  let found: QueuedRequest | undefined;
  let lowest = Infinity;
  for (const { next, virtualMs } of seatable.front(() => true, CANDIDATES)) {
    const queued = next?.next;
    if (queued === undefined || virtualMs >= lowest || aged(queued) || !fits(queued)) continue;
    found = queued;
    lowest = virtualMs;
  }
  return found;
}

/** The first request that a free seat is long enough for, of the account with the lowest virtual time that has one. */
function fitting(seatable: Heap<Account>, fits: Asked['fits']): QueuedRequest | undefined {
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
function worth({ needs }: QueuedRequest, shares: (prefix: Uint32Array) => number): number {
  if (needs?.prefix === undefined || needs.promptTokens < MIN_TOKENS) return 0;
  const shared = shares(needs.prefix);
  return shared >= Math.max(MIN_TOKENS, MIN_SHARE * needs.promptTokens) ? shared : 0;
}
