import type { StateElsewhere } from '../../engine/protocol/shared-state.js';
import type { EngineFacts } from './engine.js';
import { PREFIX_CHUNK } from '../../engine/protocol/prefix-hash.js';
import type { PrefixIndex, ReplicaPrefixes } from './prefix-index.js';

export { CACHE_SHARE, MOST_CACHE_BYTES } from '../../engine/protocol/cache-size.js';
export { MEMORY_FILES } from '../../engine/protocol/shared-state.js';

/** A replica as the other replicas see it. */
export interface Sibling {
  readonly pid: number | undefined;
  readonly facts: EngineFacts | undefined;
  heldPrefixes(): ReplicaPrefixes;
}

/**
 * How much of a prompt one of the replicas has: in its own sequences and cache, and in the caches of those others whose
 * states it can restore.
 */
export class ReachablePrefixes implements PrefixIndex {
  readonly #replicas: readonly Sibling[];
  readonly #at: number;

  constructor(replicas: readonly Sibling[], at: number) {
    this.#replicas = replicas;
    this.#at = at;
  }

  longestOf(hashes: Uint32Array): number {
    const replica = this.#replicas[this.#at];
    let most = replica?.heldPrefixes().longestOf(hashes) ?? 0;
    for (const other of this.#replicas) {
      if (replica && other !== replica && canRestore(replica, other))
        most = Math.max(most, other.heldPrefixes().longestShared(hashes));
    }
    return most;
  }
}

/** A state in another replica's cache that has more of a prompt than replica `at` has; undefined: there is none. */
export function stateElsewhere(
  replicas: readonly Sibling[],
  at: number,
  hashes: Uint32Array,
): StateElsewhere | undefined {
  const replica = replicas[at];
  let most = replica?.heldPrefixes().longestOf(hashes) ?? 0;
  let found: StateElsewhere | undefined;
  for (const other of replicas) {
    const { pid } = other;
    if (!replica || other === replica || pid === undefined || !canRestore(replica, other)) continue;
    const prefixes = other.heldPrefixes();
    const shared = prefixes.longestShared(hashes);
    const state = shared >= most + PREFIX_CHUNK ? prefixes.sharedState(hashes) : undefined;
    if (!state) continue;
    most = shared;
    found = { ...state, pid };
  }
  return found;
}

/**
 * Whether a replica can restore the states of another one: these have the same weights, KV type and shape, and fit its seats. A
 * state has at most as many tokens as a seat of the replica that saved it.
 */
function canRestore({ facts: own }: Sibling, { facts: theirs }: Sibling): boolean {
  if (own?.states === undefined || theirs?.states !== own.states) return false;
  return theirs.contextPerSeat <= own.contextPerSeat;
}
