import type { CheckpointStore } from './checkpoint-store.js';
import type { SequenceStates, StateNotes, WholeState } from './decoder.js';
import { EngineFault, UncleanSequence } from './faults.js';
import { LEAST_SAVED, type Entry, type PrefixCache } from './prefix-cache.js';
import { SequenceCheckpoints } from './sequence-checkpoints.js';
import { SequenceTokens } from './sequence-tokens.js';
import type { CacheKey, CacheScope, StateElsewhere } from '../protocol/cache-key.js';
import type { Clock } from '../protocol/clock.js';

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

/** States that are saved before any came back, of all scopes together. */
const FIRST_SAVES = 128;

/** A restore pays for as many saves of its scope: where fewer come back, they are hardly worth their copies for a small model. */
const SAVES_A_RESTORE = 16;

/** The most that restores pay for ahead. */
const MOST_PAID = 128;

/**
 * Any other save is followed by a pause of so many times its length. The copy then takes a quarter of a percent of the time, and its
 * digest and its memory take about as much again.
 */
const PAUSE = 400;

/** Scopes whose restores are remembered, at most. */
const MOST_SCOPES = 4096;

/**
 * Decides whether states that are overwritten are saved, by how many of their scope's last ones came back. Where none does, a
 * model for which a copy costs much beside a prefill saves few, and one for which it costs little still saves most.
 */
class SavePace {
  readonly #clock: Clock;
  #first = FIRST_SAVES;
  /** Saves that restores have paid for, by scope. */
  readonly #paid = new Map<CacheScope, number>();
  /** Clock reading. */
  #pauseEnds = -Infinity;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether a state of this scope is to be saved now. */
  allows(scope: CacheScope): boolean {
    return this.#first > 0 || this.#paid.has(scope) || this.#clock.now() >= this.#pauseEnds;
  }

  /** A save begins. The result is to be called at its end. */
  begin(scope: CacheScope): () => void {
    const from = this.#clock.now();
    const paid = this.#paid.get(scope);
    if (paid !== undefined) this.#pay(scope, paid - 1);
    else if (this.#first > 0) this.#first -= 1;
    else return () => (this.#pauseEnds = this.#clock.now() + PAUSE * (this.#clock.now() - from));
    return () => undefined;
  }

  restored(scope: CacheScope): void {
    this.#pay(scope, Math.min(MOST_PAID, (this.#paid.get(scope) ?? 0) + SAVES_A_RESTORE));
    const [oldest] = this.#paid.keys();
    if (this.#paid.size > MOST_SCOPES && oldest !== undefined) this.#paid.delete(oldest);
  }

  /** Moves it to the end, so that the first is the one not used for longest. */
  #pay(scope: CacheScope, saves: number): void {
    this.#paid.delete(scope);
    if (saves > 0) this.#paid.set(scope, saves);
  }
}

/** Of the time of a step: copies may take longer than expected. */
const OF_STEP = 3 / 4;

/** The weight of the newest copy in the average: about the last four count. */
const NEWEST = 1 / 4;

type Copy = 'save' | 'restore';

/**
 * Bounds what running replies wait for copies of states between two decodes: at most as long as for a step, or for one copy. What a
 * copy will take is expected from the last ones.
 */
export class CopyBudget {
  readonly #clock: Clock;
  readonly #msPerToken: Partial<Record<Copy, number>> = {};
  #stepMs = 0;
  #spentMs = 0;
  #copies = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A decode ended, or nothing is decoded. `stepMs`: the expected time of a step of the replies; 0: it is unknown. */
  renew(stepMs: number): void {
    this.#stepMs = stepMs;
    this.#spentMs = 0;
    this.#copies = 0;
  }

  /** Whether there is time for a copy of so many tokens before the next decode. */
  allows(what: Copy, tokens: number): boolean {
    const each = this.#msPerToken[what];
    return this.#copies === 0 || (each !== undefined && this.#spentMs + each * tokens <= OF_STEP * this.#stepMs);
  }

  /** Makes a copy of so many tokens, and measures it. Rejects as `copy` does, without counting it. */
  async timed<T>(what: Copy, tokens: number, copy: () => Promise<T>): Promise<T> {
    const from = this.#clock.now();
    const made = await copy();
    const ms = this.#clock.now() - from;
    const known = this.#msPerToken[what];
    const each = ms / tokens;
    this.#msPerToken[what] = known === undefined ? each : known + NEWEST * (each - known);
    this.#spentMs += ms;
    this.#copies += 1;
    return made;
  }
}
