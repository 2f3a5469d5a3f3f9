import type { DecodeCosts } from './copy-times.js';
import { MOST_STEP_TOKENS, type Run } from './decoder.js';
import type { Branch, RunningItem } from './job.js';

/** A branch in the next decode, with this many tokens of its prompt; 0: its reply's next token. */
export interface BatchItem extends RunningItem {
  readonly count: number;
  /** Its token only closes a gap between sequences, and costs hardly anything. */
  readonly fills?: true;
}

/**
 * Decides what each round of the step loop decodes: `isolated`, `together` and `chunk` in this order, each given all
 * running branches, in sequence order; each result is one decode.
 */
export interface Planner extends DecodeCosts {
  /** One whole chunk of one job that needs its own decodes; such jobs take turns, in sequence order. */
  isolated(running: readonly RunningItem[]): BatchItem[];
  /** What needs logits. Pending replies skip the round: the others do not wait for their grammars. */
  together(running: readonly RunningItem[]): BatchItem[];
  /** Prompt tokens. */
  chunk(running: readonly RunningItem[]): BatchItem[];
  /**
   * What a decode took, ms, or `steps` decodes of the same parts together. `counts`: prompt tokens of each part, 0 of a next token;
   * `depth`: tokens before them.
   */
  learn(counts: readonly number[], steps: number, depth: number, ms: number): void;
}

/** Of a background job (protocol/jobs.ts). */
function isBackground({ job }: RunningItem): boolean {
  return job.work.terms.background === true;
}

/** Sorts background jobs after all others. */
export function backgroundLast(a: RunningItem, b: RunningItem): number {
  return Number(isBackground(a)) - Number(isBackground(b));
}

/** Whether a part of its prompt can be evaluated now. */
function canPrefill({ branch: { progress, pending, awaitsImage } }: RunningItem): boolean {
  return progress.left > 0 && awaitsImage === undefined && (pending === undefined || progress.chunk < progress.left);
}

/** Jobs that need their own decodes take turns, in sequence order; a background job has its turn only when no other job needs one. */
export class IsolatedTurns {
  /** The sequence of the last one. The job on the next higher one follows, then the lowest again. */
  #last = -1;

  /** One whole chunk of the job whose turn it is; none: no such job runs. */
  next(running: readonly RunningItem[]): BatchItem[] {
    const isolated = running.filter(({ job }) => job.work.isolated);
    const awaited = isolated.filter((each) => !isBackground(each));
    const all = awaited.length > 0 ? awaited : isolated;
    const next = all.find(({ branch }) => branch.sequence > this.#last) ?? all[0];
    if (!next) return [];
    this.#last = next.branch.sequence;
    return [{ count: next.branch.progress.chunk, ...next }];
  }
}

/** Rounds without tokens after which a prompt starves: it then goes before shorter ones. */
const STARVING_ROUNDS = 8;

/**
 * This many tokens at the end of prompts join a step whatever their cost: waiting would delay the first token of most
 * chats by several steps, and costs running replies one longer gap per arrival. If more prompts wait than replies run,
 * the number is multiplied by their ratio, up to a whole chunk.
 */
export const SHORT_TOKENS = 96;

/**
 * While the prompt of another job is evaluated, the replies of background jobs take part in one of so many rounds. In each round they would
 * make its step longer, and the planner would make the prompt's chunks smaller to keep the gaps of these replies short.
 */
const BACKGROUND_ROUNDS = 8;

/** The planner of a CPU, on which a step takes long: prompts get a share of the time of the replies' next tokens. */
export class BatchPlanner implements Planner {
  /** Where prompts are split, and the most prompt tokens in one decode. */
  readonly #chunk: number;
  readonly #budget: PrefillBudget;
  readonly #isolated = new IsolatedTurns();
  /** Consecutive rounds in which a prompt got no tokens. */
  readonly #roundsWithout = new WeakMap<Branch, number>();
  /** Prompt tokens that joined the replies in this round. */
  #joined = 0;
  /** Rounds in a row without background jobs; 0: this one has them. */
  #withoutBackground = 0;

  constructor(chunk: number, budget: PrefillBudget) {
    this.#chunk = chunk;
    this.#budget = budget;
  }

  get decodeMs(): number {
    return this.#budget.decodeMs;
  }

  tokenMs(depth: number): number | undefined {
    return this.#budget.tokenMs(depth);
  }

  learn(counts: readonly number[], steps: number, depth: number, ms: number): void {
    this.#budget.learn(counts, steps, depth, ms);
  }

  isolated(running: readonly RunningItem[]): BatchItem[] {
    const waits = running.some((each) => !isBackground(each) && canPrefill(each));
    this.#withoutBackground = waits ? (this.#withoutBackground + 1) % BACKGROUND_ROUNDS : 0;
    return this.#isolated.next(running);
  }

  /**
   * Every reply's next token, and the last chunks of prompts within the round's tokens. Pending replies skip the round:
   * the others do not wait for their grammars.
   */
  together(running: readonly RunningItem[]): BatchItem[] {
    const all = this.#ofRound(running).filter(({ job, branch }) => !job.work.isolated && branch.pending === undefined);
    const joining = new Map<Branch, number>();
    this.#joined = 0;
    const ratio = promptsPerReply(all);
    const short = Math.min(SHORT_TOKENS * ratio, this.#chunk);
    for (const { branch } of this.#inTurn(all)) {
      const { left, chunk } = branch.progress;
      if (left === chunk && left <= Math.max(this.#room(branch, ratio), short) - this.#joined) {
        joining.set(branch, left);
        this.#joined += left;
      } else if (this.#starves(branch)) break;
    }
    return all
      .filter(({ branch }) => branch.progress.left === 0 || joining.has(branch))
      .map(({ job, branch }) => ({ job, branch, count: joining.get(branch) ?? 0 }));
  }

  /**
   * A chunk of one prompt: whole if no reply runs, otherwise the round's remaining tokens, if they are worth a decode.
   */
  chunk(running: readonly RunningItem[]): BatchItem[] {
    const all = evaluable(this.#ofRound(running));
    const ratio = promptsPerReply(all);
    const besideReplies = ratio < Infinity;
    let chosen: BatchItem | undefined;
    for (const { job, branch } of this.#inTurn(all)) {
      const { left, chunk } = branch.progress;
      const room = this.#room(branch, ratio) - (besideReplies ? this.#joined : 0);
      // The last token is left for `together`, where its logits are needed.
      const isWhole = branch.progress.image?.image.whole === true && room < chunk;
      // An image that cannot be split has room once it has had no tokens for as many rounds as make it starve.
      const most = isWhole ? (this.#starves(branch) ? Infinity : 0) : room;
      const count = besideReplies ? Math.min(chunk, left - 1, most) : chunk < left ? chunk : 0;
      const worth = count > 0 && (!besideReplies || count >= Math.min(LEAST_TOKENS, chunk, left - 1));
      if (worth && !chosen) chosen = { job, branch, count };
      this.#roundsWithout.set(branch, chosen?.branch === branch ? 0 : (this.#roundsWithout.get(branch) ?? 0) + 1);
    }
    return chosen ? [chosen] : [];
  }

  #ofRound(running: readonly RunningItem[]): readonly RunningItem[] {
    return this.#withoutBackground === 0 ? running : running.filter((each) => !isBackground(each));
  }

  /** Tokens of this prompt that a round may take. */
  #room({ progress: { position } }: Branch, ratio: number): number {
    return ratio === Infinity ? this.#chunk : this.#budget.tokens(position, ratio);
  }

  /**
   * Prompts: those that lack their last token alone, whose work is done, then those that somebody waits for, then starving ones, then the
   * one with the fewest tokens left, so that a long prompt does not delay a short one, and of equal ones the one that arrived first (jobs'
   * ids ascend).
   */
  #inTurn(all: readonly RunningItem[]): RunningItem[] {
    const prompts = all.filter(({ branch }) => branch.progress.left > 0);
    const isLast = ({ branch }: RunningItem): number => Number(branch.progress.left === 1);
    return prompts.sort(
      (a, b) =>
        isLast(b) - isLast(a) ||
        backgroundLast(a, b) ||
        Number(this.#starves(b.branch)) - Number(this.#starves(a.branch)) ||
        a.branch.progress.left - b.branch.progress.left ||
        a.job.id - b.job.id,
    );
  }

  #starves(branch: Branch): boolean {
    return (this.#roundsWithout.get(branch) ?? 0) >= STARVING_ROUNDS;
  }
}

/** As many tokens as no sequence holds. */
const MOST_IN_RUN = 2 ** 30;

/**
 * The run in which these are decoded if no call comes from outside: all branches are replies, none in its first step, from whose state
 * others may wait to start, or wait for embeddings, which come from outside. Undefined: they are decoded once, without drafts.
 */
export function runOf(
  items: readonly BatchItem[],
  running: readonly RunningItem[],
): Pick<Run, 'most' | 'reserve' | 'once'> | undefined {
  if (items.some(({ count }) => count > 0)) return undefined;
  if (items.length < running.length && items.length < running.filter(({ branch }) => !branch.awaitsImage).length)
    return undefined;
  const most = items.map(({ branch }) => Math.min(branch.ahead.tokens, MOST_IN_RUN));
  if (Math.max(...most) <= 1) return undefined;
  if (!items.some(({ branch }) => branch.ahead.moves)) return { most };
  // A bound that has moved meanwhile would be reached by fewer drafts than at another time, and so by other digits.
  return { most, reserve: MOST_STEP_TOKENS, ...(Math.min(...most) < MOST_STEP_TOKENS && { once: true }) };
}

/** The depth to which a decode's time is attributed, in tokens: of several prompts the deepest. */
export function depthOf(items: readonly BatchItem[]): number {
  return Math.max(...items.map(({ branch, count }) => branch.progress.position - count));
}

/** The branches of jobs that share decodes, without those that wait for an image's embeddings. */
export function evaluable(running: readonly RunningItem[]): RunningItem[] {
  return running.filter(({ job, branch }) => !job.work.isolated && branch.awaitsImage === undefined);
}

/** Waiting prompts per running reply, at least 1; Infinity if none runs. */
function promptsPerReply(all: readonly RunningItem[]): number {
  const replies = all.filter(({ branch }) => branch.progress.left === 0).length;
  return replies === 0 ? Infinity : Math.max(1, (all.length - replies) / replies);
}

/** The weight of the newest decode of next tokens in the average: about the last eight count. */
const NEWEST_DECODE = 1 / 8;
/** The weight of the newest chunk: it was evaluated just before the next one's position. */
const NEWEST_CHUNK = 1 / 2;

/** Tokens of depth. */
const DEPTH_STEP = 512;

/** Smaller chunks are not worth a decode. */
export const LEAST_TOKENS = 2;

/**
 * The number of prompt tokens that a round of the step loop may have beside running replies, so that they take the allowed share
 * of the time of the replies' own decode, including the fixed cost of one more decode. Each chunk's time per token determines
 * the size of the next. This spreads the fixed cost over the tokens, which is inexact when sizes differ; but the next
 * chunk is measured again, and the sizes converge to the one that takes the allowed time.
 */
export class PrefillBudget {
  /** Time for prompts over time for next tokens. */
  readonly #share: number;
  readonly #most: number;
  /** Milliseconds of a decode of only next tokens; undefined if none was measured. */
  #decodeMs: number | undefined;
  readonly #prompt = new CostByDepth(DEPTH_STEP, NEWEST_CHUNK);

  /** At most `most` tokens a round, and `share` of the time of next tokens, but at least {@link LEAST_TOKENS}. */
  constructor(share: number, most: number) {
    this.#share = share;
    this.#most = most;
  }

  /** The expected time of a decode of only next tokens; 0: none was measured. */
  get decodeMs(): number {
    return this.#decodeMs ?? 0;
  }

  /**
   * What a decode took, ms, or `steps` decodes of the same parts together. `counts`: prompt tokens of each part, 0 of a next token;
   * `depth`: tokens before them.
   */
  learn(counts: readonly number[], steps: number, depth: number, ms: number): void {
    const prompt = counts.reduce((sum, count) => sum + count, 0);
    if (prompt === 0) this.decoded(ms / steps);
    else if (counts.every((count) => count > 0)) this.prefilled(prompt, depth, ms);
  }

  /** A decode of next tokens alone. */
  decoded(ms: number): void {
    this.#decodeMs = mixed(this.#decodeMs, ms, NEWEST_DECODE);
  }

  /** A decode of prompt tokens alone, with so many before them. */
  prefilled(tokens: number, depth: number, ms: number): void {
    if (tokens >= LEAST_TOKENS) this.#prompt.learn(depth, ms / tokens);
  }

  /** Tokens after `depth` others that this round may have, with `ratio` times the share: all, as long as nothing was measured. */
  tokens(depth: number, ratio = 1): number {
    const each = this.tokenMs(depth);
    if (!(this.decodeMs > 0) || each === undefined) return this.#most;
    const fit = Math.floor((ratio * this.#share * this.decodeMs) / each);
    return Math.min(this.#most, Math.max(fit, LEAST_TOKENS));
  }

  /** Of a prompt token after `depth` others, ms; undefined if it is not known, or is too short to be measured. */
  tokenMs(depth: number): number | undefined {
    return this.#prompt.at(depth) || undefined;
  }
}

/** What a prompt token takes, ms: it grows with the tokens before it, so it is kept by depth. */
export class CostByDepth {
  readonly #step: number;
  readonly #newest: number;
  readonly #ms: (number | undefined)[] = [];

  /** `step`: tokens of depth that are one; `newest`: the weight of the newest measurement. */
  constructor(step: number, newest: number) {
    this.#step = step;
    this.#newest = newest;
  }

  learn(depth: number, ms: number): void {
    this.#ms[Math.floor(depth / this.#step)] = mixed(this.at(depth), ms, this.#newest);
  }

  /** Without a measurement at this depth, that of the one before; before the first, the first; undefined if there is none. */
  at(depth: number): number | undefined {
    const upTo = this.#ms.slice(0, Math.floor(depth / this.#step) + 1);
    return upTo.findLast((each) => each !== undefined) ?? this.#ms.find((each) => each !== undefined);
  }
}

/** The average after a measurement with this weight; the first one as it is. */
export function mixed(known: number | undefined, newest: number, weight: number): number {
  return known === undefined ? newest : known + weight * (newest - known);
}
