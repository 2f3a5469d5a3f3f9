import { type CheckpointStore } from './checkpoint-store.js';
import type { SequenceStates, StateNotes, WholeState } from './decoder.js';
import type { CopyBudget } from './copy-budget.js';
import { EngineFault, UncleanSequence } from './faults.js';
import { LEAST_SAVED, type Entry, type PrefixCache } from './prefix-cache.js';
import { SavePace } from './save-pace.js';
import { SequenceCheckpoints } from './sequence-checkpoints.js';
import { SequenceTokens } from './sequence-tokens.js';
import type { CacheKey } from '../protocol/cache-key.js';
import type { Clock } from '../protocol/clock.js';
import type { StateElsewhere } from '../protocol/shared-state.js';

/** What a sequence holds, as its owner records it. */
export interface Held {
  readonly tokens: SequenceTokens;
  readonly checkpoints: SequenceCheckpoints;
}

/** How a sequence's state is overwritten. */
interface Overwritten {
  /** Leading tokens that stay. */
  readonly keep: number;
  /** All other sequences. */
  readonly others: readonly Held[];
  /** Replies wait meanwhile. */
  readonly beside: boolean;
}

/** Moves states between sequences and the prefix cache. The caller records what its sequences hold. */
export class SequenceCache {
  readonly #states: SequenceStates;
  readonly #cache: PrefixCache;
  readonly #checkpoints: CheckpointStore;
  readonly #copies: CopyBudget;
  readonly #pace: SavePace;

  /** `checkpoints`: of the sequences. */
  constructor(
    states: SequenceStates,
    cache: PrefixCache,
    checkpoints: CheckpointStore,
    copies: CopyBudget,
    clock: Clock,
  ) {
    this.#states = states;
    this.#cache = cache;
    this.#checkpoints = checkpoints;
    this.#copies = copies;
    this.#pace = new SavePace(clock);
  }

  /**
   * Saves the state of a sequence before it is overwritten, where that is worth it. Never rejects: a state that cannot be saved is
   * lost, as without a cache. False: it is to be saved, but there is no time for it before the next decode.
   */
  async save(sequence: number, { tokens, checkpoints }: Held, { keep, others, beside }: Overwritten): Promise<boolean> {
    const scope = tokens.key?.scope;
    if (!this.#states.saveWhole || !this.#cache.open || scope === undefined) return true;
    if (tokens.length - keep < LEAST_SAVED) return true;
    const elsewhere = others.map((other) => other.tokens.sharedWith(tokens));
    if (tokens.length - Math.max(this.#cache.shared(tokens), ...elsewhere) < LEAST_SAVED) return true;
    if (!this.#pace.allows(scope)) return true;
    if (beside && !this.#copies.allows('save', tokens.length)) return false;
    const held = heldBy(others);
    if (!this.#cache.prepare(tokens.length, held)) return true;
    const ended = this.#pace.begin(scope);
    const state = await this.#saved(sequence, tokens);
    ended();
    if (!state) return true;
    const saved = { tokens: new SequenceTokens(), checkpoints: new SequenceCheckpoints(this.#checkpoints) };
    saved.tokens.become(tokens);
    saved.checkpoints.become(checkpoints);
    this.#cache.add(saved.tokens, saved.checkpoints, state, held);
    return true;
  }

  /**
   * Makes a state of another process an entry, which is compared and restored like those of this one. The other process
   * keeps the file too, so the entry takes no memory. Nothing happens where the state no longer exists, or an entry has
   * all of its tokens. `others`: all sequences.
   */
  adopt(elsewhere: StateElsewhere, key: CacheKey, others: readonly Held[]): void {
    if (!this.#states.openWhole || !this.#cache.open) return;
    try {
      const { state, notes } = this.#states.openWhole(elsewhere);
      const tokens = new SequenceTokens();
      tokens.fill(notes.tokens, notes.ends, key);
      notes.tokens.fill(0);
      if (this.#cache.shared(tokens) < tokens.length) {
        this.#cache.add(tokens, new SequenceCheckpoints(this.#checkpoints), state, heldBy(others));
        return;
      }
      tokens.wipe();
      state.dispose();
    } catch {
      // The other process needed the room, or has ended.
    }
  }

  /** Makes a sequence hold an entry's tokens. Rejects when it cannot: the state is then unknown, and the entry dropped unless the cause is the sequence. */
  async restore(sequence: number, entry: Entry): Promise<void> {
    const { tokens, state, digest } = entry;
    try {
      if (state.length !== tokens.length || tokens.digest !== digest)
        throw new EngineFault('a saved state of other tokens');
      await this.#copies.timed('restore', tokens.length, async () => {
        if (!this.#states.restoreWhole) throw new EngineFault('states cannot be restored');
        await this.#states.restoreWhole(sequence, state);
      });
      if (tokens.key) this.#pace.restored(tokens.key.scope);
    } catch (error) {
      if (!(error instanceof UncleanSequence)) this.#cache.drop(entry, 'failed');
      throw error;
    }
  }

  /** With its tokens, unless some stand for an image: what an image is called differs between processes. */
  async #saved(sequence: number, tokens: SequenceTokens): Promise<WholeState | undefined> {
    const notes: StateNotes | undefined = tokens.hasImages
      ? undefined
      : { tokens: tokens.tokens.slice(), ends: Uint32Array.from(tokens.ends) };
    try {
      return await this.#copies.timed('save', tokens.length, () => this.#copyOf(sequence, tokens.length, notes));
    } catch {
      return undefined;
    } finally {
      notes?.tokens.fill(0);
    }
  }

  async #copyOf(sequence: number, length: number, notes: StateNotes | undefined): Promise<WholeState | undefined> {
    const state = await this.#states.saveWhole?.(sequence, notes);
    if (!state || state.length === length) return state;
    state.dispose();
    throw new EngineFault('a state of other tokens');
  }
}

/** Whether one of these sequences has all of some tokens. */
function heldBy(others: readonly Held[]): (saved: SequenceTokens) => boolean {
  return (saved) => others.some(({ tokens }) => tokens.beginsWith(saved));
}
