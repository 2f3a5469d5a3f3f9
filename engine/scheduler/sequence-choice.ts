import type { SequenceTokens, Reuse } from './sequence-tokens.js';
import type { PromptPlan } from './prompt-plan.js';

/**
 * What a gap between live ids costs, in prompt tokens: one more decode at each step, for as long as the reply beside it
 * runs. On a CPU a decode of one token costs about two prompt tokens, and replies run for a hundred and more.
 */
const GAP_TOKENS = 256;

/**
 * What a copy costs at most, in prompt tokens. It moves all that a sequence could hold, whatever it holds: at 8,192 tokens
 * of context that took as long as 20 prompt tokens (bench/results/reuse.md) on models so small that their tokens are cheap
 * beside their state, and up to 39 on a busy machine.
 */
export const COPY_TOKENS = 64;

/** Where a prompt goes, and what of it is there already. */
export interface Choice {
  readonly sequence: number;
  /** The sequence to copy from first; undefined: what is held is its own. */
  readonly source?: number;
  /** Leading tokens of the prompt that need not be evaluated. */
  readonly keep: number;
}

/** A sequence as the choice sees it. */
export interface Slot {
  readonly tokens: SequenceTokens;
  readonly live: boolean;
  /** What it is taken for sits steps out. */
  readonly intermittent?: boolean;
  /** When it was last given back, as a count. */
  readonly usedAt: number;
}

/**
 * The free sequence for a prompt: the one that saves most, less what the gaps between live ids cost (llama.cpp packs
 * neighbouring ids into one decode, docs/engine.md#a-step). Of equals an empty one, so that nothing worth keeping is
 * written over, then the one longest unused, then the lowest. Undefined: none is free.
 *
 * Those that sit steps out leave gaps when they do, so they are neighbours among themselves, from the last id down.
 */
export function choose(slots: readonly Slot[], plan: PromptPlan, rules: Rules): Choice | undefined {
  const keeps = slots.map(({ tokens }, id) => tokens.reusable(plan, rules.reuse(id)));
  const source = rules.copyable ? keeps.indexOf(Math.max(...keeps)) : -1;
  const copied = keeps[source] ?? 0;
  let best: Ranked | undefined;
  for (const [sequence, slot] of slots.entries()) {
    if (slot.live) continue;
    const own = keeps[sequence] ?? 0;
    const copies = copied - COPY_TOKENS > own;
    const score =
      (copies ? copied - COPY_TOKENS : own) - GAP_TOKENS * newRuns(slots, sequence, rules.intermittent === true);
    const choice = copies ? { sequence, source, keep: copied } : { sequence, keep: own };
    const ranked = { choice, slot, score };
    if (!best || better(ranked, best)) best = ranked;
  }
  return best?.choice;
}

export interface Rules {
  /** How far each sequence's state may be built on. */
  readonly reuse: (sequence: number) => Reuse;
  readonly copyable: boolean;
  /** The prompt's reply will sit steps out. */
  readonly intermittent?: boolean;
}

interface Ranked {
  readonly choice: Choice;
  readonly slot: Slot;
  readonly score: number;
}

/** Whether `a` goes before `b`, which has the lower id. */
function better(a: Ranked, b: Ranked): boolean {
  if (a.score !== b.score) return a.score > b.score;
  const [aEmpty, bEmpty] = [a.slot.tokens.length === 0, b.slot.tokens.length === 0];
  if (aEmpty || bEmpty) return aEmpty && !bEmpty;
  return a.slot.usedAt < b.slot.usedAt;
}

/** By how many the runs of neighbouring live ids grow when `id` joins them: 1 by itself, -1 when it closes a gap. */
function newRuns(slots: readonly Slot[], id: number, intermittent: boolean): number {
  const live = (other: number): number => {
    const slot = slots[other];
    if (!slot) return intermittent && other > id ? 1 : 0;
    return slot.live && (slot.intermittent === true) === intermittent ? 1 : 0;
  };
  return 1 - live(id - 1) - live(id + 1);
}
