import type { SequenceTokens, Reuse } from './sequence-tokens.js';
import type { PromptPlan } from './prompt-plan.js';

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
  const hasOther = slots.some((slot) => !slot.live && !isKept(slot));
  let best: Ranked | undefined;
  for (const [sequence, slot] of slots.entries()) {
    if (slot.live || (hasOther && isKept(slot))) continue;
    const own = keeps[sequence] ?? 0;
    const copying = copied - COPY_TOKENS > own;
    const overwrites = own < LEAST_PREFIX_TOKENS && slot.tokens.length - own > own;
    const saved = overwrites ? 0 : own;
    const score =
      (copying ? copied - COPY_TOKENS : saved) - GAP_TOKENS * newRuns(slots, sequence, rules.intermittent === true);
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
