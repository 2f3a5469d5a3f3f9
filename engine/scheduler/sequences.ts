import { CopyTimes, type DecodeCosts } from './copy-times.js';
import type { SequenceStates } from './decoder.js';
import { EngineFault } from './faults.js';
import type { EndedReply, Work } from './job.js';
import type { PromptPlan } from './prompt-plan.js';
import { type KeepLimits, type Overwritten, SavedStates } from './saved-states.js';
import type { Held, Reuse, SequenceTokens } from './state-store.js';
import { StoppedReplies } from './stopped-replies.js';
import { ClosedScopes, prefixHashes, type CacheKey, type CacheScope } from '../protocol/cache-key.js';
import { processClock, type Clock } from '../protocol/clock.js';
import type { CacheCounts, HeldPrefix, HeldTokens } from '../protocol/messages.js';

/** A sequence that was taken for a prompt: it contains exactly the first `keep` tokens of it. */
export type OpenedSequence = Pick<ChosenSequence, 'sequence' | 'keep'>;

/** A reply in the sequence that was freed with it. */
export interface HeldReply {
  readonly sequence: number;
  readonly reply: EndedReply;
  /** All that the sequence holds: a view. */
  readonly tokens: Uint32Array;
  readonly key: CacheKey;
}

/** One sequence of the context, and what it holds. */
class Sequence implements Slot {
  readonly held: Held;
  readonly isParked: boolean;
  live = false;
  intermittent = false;
  session: number | undefined;
  usedAt = 0;
  /** Clock reading when it was last taken or freed. */
  movedAt = 0;
  /** The reply that it was freed with, until it is returned by `Sequences.takeReply`. */
  reply: EndedReply | undefined;
  readonly #truncatable: boolean;

  constructor(held: Held, isParked: boolean, truncatable: boolean) {
    this.held = held;
    this.isParked = isParked;
    this.#truncatable = truncatable;
  }

  get tokens(): SequenceTokens {
    return this.held.tokens;
  }

  get lengths(): readonly number[] | undefined {
    return this.#truncatable ? undefined : this.held.lengths;
  }
}

/**
 * The context's sequences: which are free, which one a prompt gets, what they hold, and the truncations, copies and restores that change
 * it. The records here always equal the decoder's state, or are empty. Those beside the seats are parked: no prompt runs in them, and they
 * hold what was overwritten in a seat, to be copied back without host memory.
 */
export class Sequences {
  readonly #states: SequenceStates;
  /** Whether a sequence can be built on at all. */
  readonly #reusable: boolean;
  readonly #all: readonly Sequence[];
  readonly #saved: SavedStates;
  readonly #times: CopyTimes;
  readonly #clock: Clock;
  /** Sequences taken or freed since the last call of `changes`. */
  readonly #changed = new Set<number>();
  /** Scopes that are forgotten, while jobs of theirs run. */
  readonly #forgotten = new Set<CacheScope>();
  /** Scopes of which nothing is to be kept: an account may be closed while a request of it waits. */
  readonly closed = new ClosedScopes();
  /** As old as the states of sequences become, and forgotten with them. */
  readonly stopped: StoppedReplies;
  #live = 0;
  #uses = 0;

  /** `costs`: absent, nothing is known of them. */
  constructor(
    states: SequenceStates,
    seats: number,
    limits: KeepLimits = {},
    clock: Clock = processClock,
    costs: DecodeCosts = { decodeMs: 0, tokenMs: () => undefined },
  ) {
    this.#states = states;
    this.#reusable = states.truncatable || states.save !== undefined;
    this.#clock = clock;
    this.stopped = new StoppedReplies(seats, clock);
    this.#times = new CopyTimes(clock, costs);
    const saved = new SavedStates(states, limits, this.#times, clock);
    this.#saved = saved;
    const made = (_: unknown, id: number): Sequence => new Sequence(saved.nothing(), id >= seats, states.truncatable);
    this.#all = Array.from({ length: seats + (limits.parked ?? 0) }, made);
  }

  /** Sequences taken. */
  get live(): number {
    return this.#live;
  }

  get tokens(): HeldTokens {
    let running = 0;
    let kept = 0;
    for (const { live, tokens } of this.#all) {
      if (live) running += tokens.length;
      else kept += tokens.length;
    }
    return { running, kept };
  }

  /** Whether a turn of this session was the last job of a sequence. */
  hasStateOf(session: number | undefined): boolean {
    return session !== undefined && this.#all.some((each) => each.session === session);
  }

  /** Of the prefix cache. */
  get counts(): CacheCounts {
    return this.#saved.counts;
  }

  /** A decode ended, or nothing is decoded: there is time for copies again. */
  renewCopies(): void {
    this.#times.renew();
  }

  /**
   * Takes a free sequence and prepares it; the caller returns it with `free`. `reuse` returns how much of each
   * sequence's state may be reused, and for -1 how much of a saved one. `beside`: replies run, whose next step waits for the copies.
   * 'full': no sequence is free; 'later': a copy does not fit before the next decode, and nothing is taken. Rejects if the decoder
   * cannot even clear it; the sequence is then free.
   */
  async open(
    plan: PromptPlan,
    reuse: (sequence: number) => Reuse,
    { intermittent = false, terms }: Partial<Pick<Work, 'intermittent' | 'terms'>> = {},
    beside = false,
  ): Promise<OpenedSequence | 'full' | 'later'> {
    const all = this.#all;
    const kept = terms?.claims?.kept;
    const copyable = this.#states.copyable && this.#reusable;
    const rules = { copyable, reuse: this.#reusable ? reuse : (): Reuse => 'none', intermittent, kept };
    const free = choose(all, plan, rules);
    if (!free) return 'full';
    const held = all.map((each) => each.held);
    const saved = this.#saved.find(plan, rules.reuse(-1), free.keep, terms?.elsewhere, held);
    const choice = (saved && choose(all, plan, { copyable: false, reuse: () => 'none', intermittent, kept })) ?? free;
    const { sequence, source } = choice;
    const slot = this.#at(sequence);
    const others = held.filter((each) => each !== slot.held);
    const overwritten = { keep: source === undefined ? choice.keep : 0, others, beside, kept: saved?.entry };
    if (!(await this.#setAside(sequence, overwritten, source))) return 'later';
    if (saved && beside && !this.#saved.fits(saved.entry)) return 'later';
    this.#mark(sequence, true);
    slot.intermittent = intermittent;
    slot.session = terms?.claims?.session;
    try {
      if (!saved) {
        const copied = source === undefined || (await this.#copy(sequence, source));
        return { sequence, keep: await this.#truncate(sequence, plan, copied ? choice.keep : 0) };
      }
      slot.held.truncate(0);
      const restored = await this.#saved.restore(sequence, slot.held, saved.entry);
      const keep = await this.#truncate(sequence, plan, restored ? saved.keep : 0);
      if (restored) this.#saved.used(saved.entry, keep);
      return { sequence, keep };
    } catch (error) {
      this.free(sequence);
      throw error;
    }
  }

  /** Prepares a sequence for another prompt. Returns how much of it is reused. Rejects as `open` does. */
  async reopen(sequence: number, plan: PromptPlan, reuse: Reuse): Promise<number> {
    const { tokens, lengths } = this.#at(sequence);
    return this.#truncate(sequence, plan, this.#reusable ? tokens.reusable(plan, reuse, lengths) : 0);
  }

  /** Records a step's tokens. `alone`: a chunk of a prompt, with nothing else in its decode. */
  evaluated(sequence: number, tokens: Uint32Array, alone: boolean): void {
    this.#at(sequence).tokens.append(tokens, alone);
  }

  /** A part failed: the sequence's state is unknown, so it is not reused. */
  invalidated(sequence: number): void {
    this.#at(sequence).held.truncate(0);
  }

  /** Saves what a sequence holds now, to go back to. Rejects when the decoder cannot; the sequence's state is then unknown. */
  async save(sequence: number): Promise<void> {
    try {
      await this.#saved.checkpoint(sequence, this.#at(sequence).held);
    } catch (error) {
      this.invalidated(sequence);
      throw error;
    }
  }

  /** Frees a sequence, which keeps its state. `reply`: with which it ended. Throws if it is not taken (a bug). */
  free(sequence: number, reply?: EndedReply): void {
    const slot = this.#at(sequence);
    if (!slot.live) throw new EngineFault(`sequence ${sequence} is not taken`);
    this.#mark(sequence, false);
    slot.reply = reply;
  }

  /** Of the replies that free sequences hold and that were not taken the one that ended last, valid until the next change. */
  get lastReply(): HeldReply | undefined {
    let last: HeldReply | undefined;
    let lastAt = -1;
    for (const [sequence, { reply, tokens, usedAt }] of this.#all.entries()) {
      if (!reply || !tokens.key || usedAt < lastAt) continue;
      last = { sequence, reply, tokens: tokens.tokens, key: tokens.key };
      lastAt = usedAt;
    }
    return last;
  }

  /** Takes it. What its sequence holds may then be changed, although that stays free. */
  takeReply(): HeldReply | undefined {
    const last = this.lastReply;
    if (!last) return undefined;
    this.#at(last.sequence).reply = undefined;
    this.#changed.add(last.sequence);
    return last;
  }

  /**
   * Nothing that requests of this scope left is kept, nor what later ones will leave, but for those of all accounts. Takes
   * effect in `tidy`.
   */
  forget(scope: CacheScope): void {
    this.#forgotten.add(scope);
    this.closed.close(scope);
  }

  /**
   * Drops what is forgotten, and what was not used for the longest age. `uses`: whether a job of a scope has not ended. Returns
   * whether a job has not whose states are to be forgotten.
   */
  async tidy(uses: (scope: CacheScope) => boolean): Promise<boolean> {
    this.#saved.expire();
    for (const scope of this.#forgotten) this.#saved.forget(scope);
    const before = this.#clock.now() - this.#saved.maxAgeMs;
    this.stopped.tidy(before, this.#forgotten);
    for (const [sequence, slot] of this.#all.entries()) {
      const { key } = slot.tokens;
      if (slot.live || key === undefined || !(slot.movedAt < before || this.#forgotten.has(key.scope))) continue;
      this.#changed.add(sequence);
      slot.held.wipe();
      slot.reply = undefined;
      await this.#states.truncate(sequence, 0);
    }
    for (const scope of this.#forgotten) if (!uses(scope)) this.#forgotten.delete(scope);
    return this.#forgotten.size > 0;
  }

  /** What has changed since the last call: sequences taken or freed, with the prefixes of the free ones, and saved states. */
  changes(): HeldPrefix[] {
    const changes = [...this.#changed].map((sequence) => {
      const { live, tokens } = this.#at(sequence);
      const scope = !live && this.#reusable ? tokens.key?.scope : undefined;
      return { sequence, hashes: scope === undefined ? new Uint32Array(0) : prefixHashes(tokens.tokens, scope) };
    });
    this.#changed.clear();
    return [...changes, ...this.#saved.changes(this.#all.length)];
  }

  /**
   * Sets aside what a sequence holds before it is overwritten: into a parked one, whose own state then goes to host memory, or itself goes
   * there, as far as that is worth it. `source`: is about to be copied. False: as `SavedStates.save`.
   */
  async #setAside(sequence: number, overwritten: Overwritten, source: number | undefined): Promise<boolean> {
    const { held } = this.#at(sequence);
    const isParkable = this.#states.copyable && this.#saved.isOnlyHere(held, overwritten);
    const place = isParkable ? this.#parkingPlace(held, source) : undefined;
    if (place === undefined) return await this.#saved.save(sequence, held, overwritten);
    const parked = this.#at(place);
    const others = this.#all.flatMap((each) => (each === parked ? [] : [each.held]));
    const { beside, kept } = overwritten;
    if (!(await this.#saved.save(place, parked.held, { keep: 0, others, beside, kept }))) return false;
    await this.#copy(place, sequence);
    this.#touch(place);
    parked.movedAt = this.#at(sequence).movedAt;
    return true;
  }

  /** The parked sequence to overwrite: one of which `held` has all, an empty one, one of which another has all, the least recently used. */
  #parkingPlace(held: Held, source: number | undefined): number | undefined {
    let place: number | undefined;
    let least = Infinity;
    for (const [sequence, slot] of this.#all.entries()) {
      if (!slot.isParked || sequence === source) continue;
      const { tokens, usedAt } = slot;
      const isElsewhere = (): boolean => this.#all.some((each) => each !== slot && each.tokens.beginsWith(tokens));
      const rank = tokens.length === 0 ? -2 : held.tokens.beginsWith(tokens) ? -3 : isElsewhere() ? -1 : usedAt;
      if (rank >= least) continue;
      place = sequence;
      least = rank;
    }
    return place;
  }

  /** False: it failed, and the target's state is unknown. */
  async #copy(target: number, source: number): Promise<boolean> {
    const { held } = this.#at(target);
    held.truncate(0);
    try {
      await this.#states.copy(target, source);
    } catch {
      return false;
    }
    held.become(this.#at(source).held);
    if (this.#at(source).isParked) this.#touch(source);
    return true;
  }

  /**
   * Truncates a sequence to the first `length` tokens of a plan. Returns what is left: nothing, where the decoder could not truncate
   * there. Rejects if it cannot even be emptied.
   */
  async #truncate(sequence: number, plan: PromptPlan, length: number): Promise<number> {
    const { held } = this.#at(sequence);
    const { truncatable } = this.#states;
    try {
      if (truncatable || length === 0 || length === held.tokens.length) await this.#states.truncate(sequence, length);
      else await this.#saved.goBack(sequence, held, length);
      held.truncate(length);
      held.tokens.keepFor(plan, length);
      return length;
    } catch (error) {
      held.truncate(0);
      if (length === 0) throw error;
    }
    await this.#states.truncate(sequence, 0);
    return 0;
  }

  #at(sequence: number): Sequence {
    const slot = this.#all[sequence];
    if (!slot) throw new RangeError(`no sequence ${sequence}`);
    return slot;
  }

  #mark(sequence: number, live: boolean): void {
    const slot = this.#at(sequence);
    slot.live = live;
    slot.reply = undefined;
    this.#live += live ? 1 : -1;
    this.#touch(sequence);
  }

  #touch(sequence: number): void {
    const slot = this.#at(sequence);
    slot.usedAt = this.#uses++;
    slot.movedAt = this.#clock.now();
    this.#changed.add(sequence);
  }
}

/**
 * The cost of a gap between used ids, in prompt tokens: one more decode at each step, while the reply beside it runs.
 * On a CPU a decode of one token costs about two prompt tokens, and replies have a hundred and more.
 */
const GAP_TOKENS = 256;

/**
 * The cost of a copy, in prompt tokens. It copies a sequence's whole capacity: at 8,192 tokens of context that took as
 * long as 20 prompt tokens (bench/results/reuse.md) on models so small that their tokens are cheap relative to their
 * state, and up to 39 on a busy machine.
 */
export const COPY_TOKENS = 64;

/**
 * A prefix of fewer tokens is no reason to overwrite more than as many that follow it: it is what a template begins every
 * prompt with, and the conversation that follows may come back.
 */
const LEAST_PREFIX_TOKENS = 64;

/** The sequence for a prompt, and its reusable tokens. */
export interface ChosenSequence {
  readonly sequence: number;
  /** The sequence to copy from first; undefined if the state is its own. */
  readonly source?: number;
  /** Leading tokens of the prompt that need not be evaluated. */
  readonly keep: number;
}

/** A sequence as the choice sees it. */
export interface Slot {
  readonly tokens: SequenceTokens;
  /** The lengths that it can go back to, what it holds now among them; absent: any. */
  readonly lengths?: readonly number[] | undefined;
  readonly live: boolean;
  /** It is only copied from. Those that are come after all others. Absent: false. */
  readonly isParked?: boolean;
  /** Its reply skips steps. */
  readonly intermittent?: boolean;
  /** The session whose state it holds; undefined if it holds no session's. */
  readonly session?: number | undefined;
  /** Counter value when it was last freed. */
  readonly usedAt: number;
}

/**
 * The free sequence for a prompt: the one that saves most, less the cost of gaps between used ids (llama.cpp decodes
 * contiguous ids together, docs/engine.md#a-step). Of equal ones an empty one, so that no useful state is overwritten,
 * then the least recently used, then the lowest. Undefined if none is free.
 *
 * Replies that skip steps leave gaps meanwhile, so they get contiguous ids from the highest down. A sequence that is kept for a session
 * is overwritten only if no other one is free; it may be copied from.
 */
export function choose(slots: readonly Slot[], plan: PromptPlan, rules: Rules): ChosenSequence | undefined {
  const keeps = slots.map(({ tokens, lengths }, id) => tokens.reusable(plan, rules.reuse(id), lengths));
  // A copy cannot go back before llama.cpp has made it.
  const copies = slots.map(({ tokens, lengths }, id) =>
    lengths ? tokens.reusable(plan, rules.reuse(id), [tokens.length]) : (keeps[id] ?? 0),
  );
  const source = rules.copyable ? copies.indexOf(Math.max(...copies)) : -1;
  const copied = copies[source] ?? 0;
  const isKept = ({ session }: Slot): boolean => session !== undefined && rules.kept?.includes(session) === true;
  const seats = slots.filter(({ isParked }) => isParked !== true);
  const hasOther = seats.some((slot) => !slot.live && !isKept(slot));
  let best: Ranked | undefined;
  for (const [sequence, slot] of seats.entries()) {
    if (slot.live || (hasOther && isKept(slot))) continue;
    const own = keeps[sequence] ?? 0;
    const copying = copied - COPY_TOKENS > own;
    const saved = own < LEAST_PREFIX_TOKENS && slot.tokens.length - own > own ? 0 : own;
    const score =
      (copying ? copied - COPY_TOKENS : saved) - GAP_TOKENS * newRuns(seats, sequence, rules.intermittent === true);
    const choice = copying ? { sequence, source, keep: copied } : { sequence, keep: own };
    const ranked = { choice, slot, score };
    if (!best || better(ranked, best)) best = ranked;
  }
  return best?.choice;
}

export interface Rules {
  /** How much of each sequence's state may be reused. */
  readonly reuse: (sequence: number) => Reuse;
  readonly copyable: boolean;
  /** The prompt's reply will skip steps. */
  readonly intermittent?: boolean;
  /** Sessions whose sequences are kept. */
  readonly kept?: readonly number[] | undefined;
}

interface Ranked {
  readonly choice: ChosenSequence;
  readonly slot: Slot;
  readonly score: number;
}

/** Whether `a` is better than `b`, which has the lower id. */
function better(a: Ranked, b: Ranked): boolean {
  if (a.score !== b.score) return a.score > b.score;
  const [aEmpty, bEmpty] = [a.slot.tokens.length === 0, b.slot.tokens.length === 0];
  if (aEmpty || bEmpty) return aEmpty && !bEmpty;
  return a.slot.usedAt < b.slot.usedAt;
}

/** The change in the number of contiguous runs of used ids when `id` is added: 1 if isolated, -1 if it closes a gap. */
function newRuns(slots: readonly Slot[], id: number, intermittent: boolean): number {
  const live = (other: number): number => {
    const slot = slots[other];
    if (!slot) return intermittent && other > id ? 1 : 0;
    return slot.live && (slot.intermittent === true) === intermittent ? 1 : 0;
  };
  return 1 - live(id - 1) - live(id + 1);
}
