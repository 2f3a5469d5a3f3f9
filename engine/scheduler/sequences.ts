import { CheckpointStore } from './checkpoint-store.js';
import { processClock } from './clock.js';
import { CopyBudget, SequenceCache } from './sequence-cache.js';
import { choose, type ChosenSequence } from './sequence-choice.js';
import type { SequenceStates } from './decoder.js';
import { EngineFault } from './faults.js';
import { PrefixCache, restoreCost, type Match, type PrefixCacheLimits } from './prefix-cache.js';
import { SequenceSlots } from './sequence-slots.js';
import type { Reuse } from './sequence-tokens.js';
import type { HeldReply } from './sequence-slots.js';
import type { PromptPlan } from './prompt-plan.js';
import type { EndedReply, Work } from './job.js';
import { type CacheScope, ClosedScopes, prefixHashes, type StateElsewhere } from '../protocol/cache-key.js';
import type { Clock } from '../protocol/clock.js';
import type { CacheCounts, HeldPrefix, HeldTokens } from '../protocol/messages.js';

/** A sequence that was taken for a prompt: it contains exactly the first `keep` tokens of it. */
export type OpenedSequence = Pick<ChosenSequence, 'sequence' | 'keep'>;

/** What the sequences' states may take beside the KV memory, and how old they become. */
export interface KeepLimits {
  /** Of all checkpoints, where the state cannot be truncated. */
  readonly checkpointBytes?: number;
  /** Absent: no state is saved when it is overwritten, and none has a longest age. */
  readonly prefixCache?: PrefixCacheLimits;
}

/** Nothing is saved, and nothing is too old. */
const NO_CACHE: PrefixCacheLimits = { bytes: 0, maxAgeMs: Infinity };

/** The context's sequences: which are free, which one a prompt gets, and what is kept of those that are overwritten. */
export class Sequences {
  readonly #copyable: boolean;
  /** Whether a sequence can be built on at all. */
  readonly #reusable: boolean;
  readonly #slots: SequenceSlots;
  readonly #cache: PrefixCache;
  readonly #clock: Clock;
  readonly #maxAgeMs: number;
  /** Sequences taken or freed since the last call of `changes`. */
  readonly #changed = new Set<number>();
  /** Scopes that are forgotten, while jobs of theirs run. */
  readonly #forgotten = new Set<CacheScope>();
  readonly #closed = new ClosedScopes();
  readonly #copies: CopyBudget;
  #live = 0;
  #uses = 0;

  constructor(
    states: SequenceStates,
    seats: number,
    { checkpointBytes = 0, prefixCache = NO_CACHE }: KeepLimits = {},
    clock: Clock = processClock,
  ) {
    this.#reusable = states.truncatable || states.save !== undefined;
    this.#copyable = states.copyable && this.#reusable;
    this.#clock = clock;
    this.#maxAgeMs = prefixCache.maxAgeMs;
    this.#cache = new PrefixCache(prefixCache, clock, states.restoredTruncatable ?? states.truncatable);
    const store = new CheckpointStore(checkpointBytes);
    this.#copies = new CopyBudget(clock);
    const cache = new SequenceCache(states, this.#cache, store, this.#copies, clock);
    this.#slots = new SequenceSlots(states, seats, store, cache);
  }

  /** Sequences taken. */
  get live(): number {
    return this.#live;
  }

  /** The tokens in all of them. */
  get tokens(): HeldTokens {
    let running = 0;
    let kept = 0;
    for (const { live, tokens } of this.#slots.all) {
      if (live) running += tokens.length;
      else kept += tokens.length;
    }
    return { running, kept };
  }

  /** Of the prefix cache. */
  get counts(): CacheCounts {
    return this.#cache.counts;
  }

  /** A decode ended, or nothing is decoded: there is time for copies again. `stepMs`: as for {@link CopyBudget}. */
  renewCopies(stepMs: number): void {
    this.#copies.renew(stepMs);
  }

  /**
   * Takes a free sequence and prepares it; the caller returns it with `free`. `reuse` returns how much of each
   * sequence's state may be reused, and for -1 how much of a saved one. `intermittent`: its reply skips steps. `elsewhere`: a state
   * of another process that may have more. `beside`: replies run, whose next step waits for the copies. Undefined: none is
   * free, or a copy has to wait for the next decode, after which this is to be called again. Rejects if the decoder cannot even
   * clear it; the sequence is then free.
   */
  async open(
    plan: PromptPlan,
    reuse: (sequence: number) => Reuse,
    { intermittent = false, elsewhere }: Pick<Work, 'intermittent' | 'elsewhere'> = {},
    beside = false,
  ): Promise<OpenedSequence | undefined> {
    const { all } = this.#slots;
    const rules = { copyable: this.#copyable, reuse: this.#reusable ? reuse : (): Reuse => 'none', intermittent };
    const free = choose(all, plan, rules);
    if (!free) return undefined;
    const found = this.#find(plan, rules.reuse(-1), free.keep, elsewhere);
    const saved = found && found.keep - restoreCost(found.entry.tokens.length) > free.keep ? found : undefined;
    const choice = (saved && choose(all, plan, { copyable: false, reuse: () => 'none', intermittent })) ?? free;
    const { sequence, source } = choice;
    this.#cache.pin(saved?.entry);
    // If this returns undefined, the entry stays pinned and the next call chooses again: nothing else is saved or taken in between.
    if (!(await this.#slots.saveWhole(sequence, source === undefined ? choice.keep : 0, beside))) return undefined;
    if (saved && beside && !this.#copies.allows('restore', saved.entry.tokens.length)) return undefined;
    this.#mark(sequence, true);
    this.#slots.at(sequence).intermittent = intermittent;
    try {
      if (saved) {
        const restored = await this.#slots.restoreWhole(sequence, saved.entry);
        const keep = await this.#slots.truncate(sequence, plan, restored ? saved.keep : 0);
        if (restored && keep > 0) this.#cache.used(saved.entry, keep);
        else if (restored) this.#cache.drop(saved.entry, 'failed');
        return { sequence, keep };
      }
      const copied = source === undefined || (await this.#slots.copy(sequence, source));
      return { sequence, keep: await this.#slots.truncate(sequence, plan, copied ? choice.keep : 0) };
    } catch (error) {
      this.free(sequence);
      throw error;
    } finally {
      this.#cache.pin(undefined);
    }
  }

  /** The entry with most of a prompt, also of another process where that may be more than what a sequence has. */
  #find(plan: PromptPlan, reuse: Reuse, kept: number, elsewhere: StateElsewhere | undefined): Match | undefined {
    const found = this.#cache.find(plan, reuse);
    if (!elsewhere || reuse === 'none') return found;
    if (elsewhere.tokens - restoreCost(elsewhere.tokens) <= Math.max(kept, found?.keep ?? 0)) return found;
    this.#slots.adopt(elsewhere, plan.key);
    return this.#cache.find(plan, reuse);
  }

  /** Prepares a sequence for another prompt. Returns how much of it is reused. Rejects as `open` does. */
  async reopen(sequence: number, plan: PromptPlan, reuse: Reuse): Promise<number> {
    const { tokens, lengths } = this.#slots.at(sequence);
    return this.#slots.truncate(sequence, plan, this.#reusable ? tokens.reusable(plan, reuse, lengths) : 0);
  }

  /** Records a step's tokens. `alone`: a chunk of a prompt, with nothing else in its decode. */
  evaluated(sequence: number, tokens: Uint32Array, alone: boolean): void {
    this.#slots.at(sequence).tokens.append(tokens, alone);
  }

  /** A part failed: the sequence's state is unknown, so it is not reused. */
  invalidated(sequence: number): void {
    this.#slots.forget(sequence, 0);
  }

  /** Saves what a sequence holds now, to go back to. Rejects when the decoder cannot; the sequence's state is then unknown. */
  async save(sequence: number): Promise<void> {
    try {
      await this.#slots.checkpoint(sequence);
    } catch (error) {
      this.invalidated(sequence);
      throw error;
    }
  }

  /** Frees a sequence, which keeps its state. `reply`: with which it ended. Throws if it is not taken (a bug). */
  free(sequence: number, reply?: EndedReply): void {
    const slot = this.#slots.at(sequence);
    if (!slot.live) throw new EngineFault(`sequence ${sequence} is not taken`);
    this.#mark(sequence, false);
    slot.reply = reply;
  }

  /** Of the replies that free sequences hold and that were not taken the one that ended last, valid until the next change. */
  get lastReply(): HeldReply | undefined {
    return this.#slots.lastReply;
  }

  /** Takes it. What its sequence holds may then be changed, although that stays free. */
  takeReply(): HeldReply | undefined {
    const last = this.lastReply;
    if (!last) return undefined;
    this.#slots.at(last.sequence).reply = undefined;
    this.#changed.add(last.sequence);
    return last;
  }

  /**
   * Nothing that requests of this scope left is kept, nor what later ones will leave, but for those of all accounts. Takes
   * effect in `tidy`.
   */
  forget(scope: CacheScope): void {
    this.#forgotten.add(scope);
    this.#closed.close(scope);
  }

  /** Whether nothing of this scope is to be kept: the account was closed while a request of it waited. */
  isClosed(scope: CacheScope): boolean {
    return this.#closed.has(scope);
  }

  /**
   * Drops what is forgotten, and what was not used for the longest age. `uses`: whether a job of a scope has not ended. Returns
   * whether a job has not whose states are to be forgotten.
   */
  async tidy(uses: (scope: CacheScope) => boolean): Promise<boolean> {
    this.#cache.expire();
    for (const scope of this.#forgotten) this.#cache.forget(scope);
    const before = this.#clock.now() - this.#maxAgeMs;
    for (const [sequence, { live, tokens, movedAt }] of this.#slots.all.entries()) {
      const { key } = tokens;
      if (live || key === undefined || !(movedAt < before || this.#forgotten.has(key.scope))) continue;
      this.#changed.add(sequence);
      await this.#slots.empty(sequence);
    }
    for (const scope of this.#forgotten) if (!uses(scope)) this.#forgotten.delete(scope);
    return this.#forgotten.size > 0;
  }

  /** What has changed since the last call: sequences taken or freed, with the prefixes of the free ones, and the cache. */
  changes(): HeldPrefix[] {
    const changes = [...this.#changed].map((sequence) => {
      const { live, tokens } = this.#slots.at(sequence);
      const scope = !live && this.#reusable ? tokens.key?.scope : undefined;
      return { sequence, hashes: scope === undefined ? new Uint32Array(0) : prefixHashes(tokens.tokens, scope) };
    });
    this.#changed.clear();
    return [...changes, ...this.#cache.changes(this.#slots.all.length)];
  }

  #mark(sequence: number, live: boolean): void {
    const slot = this.#slots.at(sequence);
    slot.live = live;
    slot.usedAt = this.#uses++;
    slot.movedAt = this.#clock.now();
    slot.reply = undefined;
    this.#live += live ? 1 : -1;
    this.#changed.add(sequence);
  }
}
