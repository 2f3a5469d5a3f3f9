import type { Heap } from './heap.js';
import type { Place } from './place.js';
import type { Tenant } from './tenant.js';

/** Less than this many tokens shared is not worth a turn. */
const MIN_TOKENS = 256;

/** Nor is less than this share of the prompt. */
const MIN_SHARE = 0.1;

/** How far behind the lowest virtual time a tenant may stand and still go first, as a share of the longest hold time. */
const ALLOWANCE = 0.25;

/** Tenants whose heads are looked at for one seat. */
const CANDIDATES = 16;

/** Tokens of a prompt, given by the hashes of its chunks, that a free sequence of the engine holds already. */
export type Shares = (prefix: Uint32Array) => number;

/**
 * Whose turn it is. The tenant with the lowest virtual time; but another's head goes first when that tenant stands close
 * behind and a free sequence holds much of its prompt. Its tenant is charged as ever, so this moves turns, not shares.
 */
export function choose(seatable: Heap<Tenant>, usualMs: number, shares: Shares | undefined): Place | undefined {
  const lowest = seatable.first;
  const head = lowest?.turns.head;
  if (!lowest || shares === undefined || seatable.size === 1) return head;
  let longest = 0;
  seatable.each(({ hold }) => (longest = Math.max(longest, hold.meanMs ?? usualMs)));
  const limit = lowest.virtualMs + ALLOWANCE * longest;
  let best = head;
  let most = 0;
  for (const { turns } of seatable.front(({ virtualMs }) => virtualMs <= limit, CANDIDATES)) {
    const place = turns.head;
    const shared = place ? worth(place, shares) : 0;
    if (shared <= most) continue;
    most = shared;
    best = place;
  }
  return best;
}

/** Tokens saved by seating it now; 0 where that is not enough to count. */
function worth({ work }: Place, shares: Shares): number {
  if (work?.prefix === undefined || work.promptTokens < MIN_TOKENS) return 0;
  const shared = shares(work.prefix);
  return shared >= Math.max(MIN_TOKENS, MIN_SHARE * work.promptTokens) ? shared : 0;
}
