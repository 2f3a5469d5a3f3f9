/** The corpus: which example comes at which place, by seed and place alone. */
import { chat, looking } from './corpus/chat.js';
import { decision, finding, judging, sorting } from './corpus/decisions.js';
import { Draw, type Split } from './corpus/draw.js';
import type { ChatExample, DecisionExample, Example } from './corpus/example.js';
import { inFiller } from './corpus/filler.js';

/** Chat's share of the examples; it makes short rows. */
const CHAT_SHARE = 0.55;
/** Bounds of the kinds of early examples. */
const EARLY_LOOKING = 0.25;
const EARLY_FINDING = 0.8;
const FOCUS_CHAT = 0.75;
const FOCUS_FINDING = 0.85;
const FOCUS_SORTING = 0.97;

const spread = (seed: number, at: number): number =>
  (Math.imul(seed, 0x9e3779b1) + Math.imul(at + 1, 0x85ebca6b)) >>> 0;

export function exampleAt(seed: number, at: number, split: Split): Example {
  const draw = new Draw(spread(seed, at), split);
  return draw.chance(CHAT_SHARE) ? chat(draw) : decision(draw);
}

export function chatAt(seed: number, at: number, split: Split): ChatExample {
  return chat(new Draw(spread(seed, at), split));
}

export function decisionAt(seed: number, at: number, split: Split): DecisionExample {
  return decision(new Draw(spread(seed, at), split));
}

/** A decision whose input is within about `tokens` tokens of irrelevant text. */
export function longDecisionAt(seed: number, at: number, split: Split, tokens: number): DecisionExample {
  const draw = new Draw(spread(seed, at), split);
  return inFiller(draw, tokens, decision);
}

/**
 * For the beginning: copies and look-ups, from which a model learns soonest to find things in its prompt, and messages
 * and posts to classify, from which it learns their topics.
 */
export function earlyAt(seed: number, at: number, split: Split): Example {
  const draw = new Draw(spread(seed, at), split);
  const kind = draw.next();
  if (kind < EARLY_LOOKING) return looking(draw);
  if (kind < EARLY_FINDING) return finding(draw);
  return sorting(draw);
}

/** For the end: what a first user tries: chats, look-ups, messages and posts to distinguish. */
export function focusAt(seed: number, at: number, split: Split): Example {
  const draw = new Draw(spread(seed, at), split);
  const kind = draw.next();
  if (kind < FOCUS_CHAT) return chat(draw);
  if (kind < FOCUS_FINDING) return finding(draw);
  return kind < FOCUS_SORTING ? sorting(draw) : judging(draw);
}
