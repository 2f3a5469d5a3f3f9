/** Which prompts' prefixes an engine has, and for whom: the scopes in which requests reuse state, and the prefixes a process reported. */
import { createHmac, randomBytes } from 'node:crypto';
import {
  ALL_ACCOUNTS,
  type CacheScope,
  PREFIX_CHUNK,
  prefixHashes,
  type SharedState,
} from '../../engine/protocol/cache-key.js';
import { promptIds, type Prompt } from '../../engine/protocol/prompt.js';
import { MOST_SAVED, type HeldPrefix } from '../../engine/protocol/messages.js';
import { setNewest } from '../lib/id-map.js';

/** Tokens of the chunks in which state is reused. */
export const REUSED_TOKENS = PREFIX_CHUNK;

/** A prompt's chain hashes, by which an index is asked for what requests of its scope may reuse. */
export function prefixOf(prompt: Prompt, scope: CacheScope): Uint32Array {
  return prefixHashes(promptIds(prompt), scope);
}

/** How much of a prompt the free sequences and the prefix cache contain. A hint: it may differ once the request has its seat. */
export interface PrefixIndex {
  /**
   * Leading tokens, in whole chunks of {@link PREFIX_CHUNK}, of the prompt with these chain hashes that the best free sequence or saved
   * prefix holds (engine/protocol/cache-key.ts).
   */
  longestOf(hashes: Uint32Array): number;
}

export interface ReplicaPrefixes extends PrefixIndex {
  /** The same of those alone that other processes can restore. */
  longestShared(hashes: Uint32Array): number;
  /** One of these that has as much; undefined if none has a chunk. */
  sharedState(hashes: Uint32Array): SharedState | undefined;
}

/** The prefixes of one life of an engine process, so of one weight file and KV type, by its reports. Bounded by count and seat length. */
export class HeldPrefixes implements ReplicaPrefixes {
  readonly #seats: number;
  readonly #longest: number;
  readonly #held = new Map<number, HeldPrefix>();
  /** By prefix hash, so that one lookup covers all sequences. */
  readonly #holders = new Holders();
  /** The same of those that others can restore. */
  readonly #sharers = new Holders();

  constructor(seats: number, contextPerSeat: number) {
    this.#seats = seats;
    this.#longest = Math.floor(contextPerSeat / PREFIX_CHUNK);
  }

  /** Applies changes. Returns undefined, or the protocol violation. */
  apply(changes: readonly HeldPrefix[]): string | undefined {
    for (const change of changes) {
      const { sequence, hashes } = change;
      if (sequence >= this.#seats + MOST_SAVED || hashes.length > this.#longest) return 'held-too-much';
      const before = this.#held.get(sequence);
      if (before) this.#count(before, -1);
      this.#count(change, 1);
      if (hashes.length > 0) this.#held.set(sequence, change);
      else this.#held.delete(sequence);
    }
    return undefined;
  }

  longestOf(hashes: Uint32Array): number {
    return this.#holders.longest(hashes) * PREFIX_CHUNK;
  }

  longestShared(hashes: Uint32Array): number {
    return this.#sharers.longest(hashes) * PREFIX_CHUNK;
  }

  sharedState(hashes: Uint32Array): SharedState | undefined {
    const chunks = this.#sharers.longest(hashes);
    if (chunks === 0) return undefined;
    for (const { hashes: held, state } of this.#held.values()) {
      if (state !== undefined && held[chunks - 1] === hashes[chunks - 1]) return state;
    }
    return undefined;
  }

  #count({ hashes, state }: HeldPrefix, by: 1 | -1): void {
    for (const hash of hashes) {
      this.#holders.count(hash, by);
      if (state !== undefined) this.#sharers.count(hash, by);
    }
  }
}

/** How many places have each prefix. */
class Holders {
  readonly #counts = new Map<number, number>();

  /** Leading chunks that some place has. A chain: one that has a prefix has all shorter ones. */
  longest(hashes: Uint32Array): number {
    let chunks = 0;
    while (chunks < hashes.length && this.#counts.has(hashes[chunks] ?? 0)) chunks += 1;
    return chunks;
  }

  count(hash: number, by: 1 | -1): void {
    const holders = (this.#counts.get(hash) ?? 0) + by;
    if (holders > 0) this.#counts.set(hash, holders);
    else this.#counts.delete(hash);
  }
}

/** Of an engine that is not there. */
export const NO_PREFIXES: ReplicaPrefixes = {
  longestOf: () => 0,
  longestShared: () => 0,
  sharedState: () => undefined,
};

/** Characters of base64url in a scope: 132 bits, so that two accounts never have the same one. */
const SCOPE_LENGTH = 22;

/** Accounts that were closed and may be opened again, at most. The oldest is forgotten first and would then get its first scope again. */
const MOST_CLOSED = 100_000;

/** Accounts whose scopes are kept, at most; those of others are computed again. */
const MOST_KNOWN = 4096;

/**
 * The scopes in which requests to one model reuse each other's prefixes. An account's scope is an HMAC under a secret of this object: an
 * engine compares it and never learns the account.
 */
export class CacheScopes {
  readonly #secret = randomBytes(32);
  readonly #sharing: 'account' | 'all';
  /** How often an account was closed. */
  readonly #closed = new Map<string, number>();
  /** Those of accounts that were asked for last: an HMAC takes a fiftieth of the sidecar's time for a short request. */
  readonly #known = new Map<string, CacheScope>();

  /** `sharing`: whether all accounts share prefixes or each has its own. */
  constructor(sharing: 'account' | 'all') {
    this.#sharing = sharing;
  }

  /** The scope of an account's requests. */
  of(account: string): CacheScope {
    if (this.#sharing === 'all') return ALL_ACCOUNTS;
    const scope = this.#known.get(account) ?? this.#made(account);
    setNewest(this.#known, account, scope, MOST_KNOWN);
    return scope;
  }

  #made(account: string): CacheScope {
    const closed = this.#closed.get(account) ?? 0;
    const hmac = createHmac('sha256', this.#secret).update(`${closed} ${account}`);
    return hmac.digest('base64url').slice(0, SCOPE_LENGTH);
  }

  /** An account was frozen or deleted. Returns the scope of its requests so far; if the account returns, it gets another one. */
  close(account: string): CacheScope {
    const scope = this.of(account);
    setNewest(this.#closed, account, (this.#closed.get(account) ?? 0) + 1, MOST_CLOSED);
    this.#known.delete(account);
    return scope;
  }
}
