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
export interface Planner {
  /** The expected time of a decode of next tokens alone, ms; 0: none was measured. */
  readonly decodeMs: number;
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

/** Rounds without tokens after which a prompt starves: it then goes before shorter ones. */
const STARVING_ROUNDS = 8;

/**
 * This many tokens at the end of prompts join a step whatever their cost: waiting would delay the first token of most
 * chats by several steps, and costs running replies one longer gap per arrival. If more prompts wait than replies run,
 * the number is multiplied by their ratio, up to a whole chunk.
 */
export const SHORT_TOKENS = 96;

/**
 * Decides what each round of the step loop decodes: `isolated`, `together` and `chunk` in this order, each given all
 * running branches, in sequence order.
 */
export class BatchPlanner implements Planner {
  /** Where prompts are split, and the most prompt tokens in one decode. */
  readonly #chunk: number;
  readonly #budget: PrefillBudget;
  /** The sequence of the last isolated job. The job on the next higher one follows, then the lowest again. */
  #lastIsolated = -1;
  /** Consecutive rounds in which a prompt got no tokens. */
  readonly #roundsWithout = new WeakMap<Branch, number>();
  /** Prompt tokens that joined the replies in this round; whether there were more of them than join whatever they cost. */
  #joined = 0;
  #spent = false;
  /** Whether a reply is in this round's decode. If none is, a prompt holds no reply up. */
  #replied = false;

  constructor(chunk: number, budget: PrefillBudget) {
    this.#chunk = chunk;
    this.#budget = budget;
  }

  get decodeMs(): number {
    return this.#budget.decodeMs;
  }

  learn(counts: readonly number[], steps: number, depth: number, ms: number): void {
    this.#budget.learn(counts, steps, depth, ms);
  }

  /** One whole chunk of one job that needs its own decodes; such jobs take turns, in sequence order. */
  isolated(running: readonly RunningItem[]): BatchItem[] {
    const all = running.filter(({ job }) => job.work.isolated);
    const next = all.find(({ branch }) => branch.sequence > this.#lastIsolated) ?? all[0];
    if (!next) return [];
    this.#lastIsolated = next.branch.sequence;
    return [{ count: next.branch.progress.chunk, ...next }];
  }

  /**
   * Every reply's next token, and the last chunks of prompts within the round's tokens. Pending replies skip the round:
   * the others do not wait for their grammars.
   */
  together(running: readonly RunningItem[]): BatchItem[] {
    const all = running.filter(({ job, branch }) => !job.work.isolated && branch.pending === undefined);
    const joining = new Map<Branch, number>();
    this.#joined = 0;
    this.#replied = all.some(({ branch }) => branch.progress.left === 0);
    this.#begin(running);
    const ratio = promptsPerReply(all);
    const short = Math.min(SHORT_TOKENS * ratio, this.#chunk);
    let depth = 0;
    let saving = false;
    for (const { branch } of this.#inTurn(all)) {
      const { left, chunk, position } = branch.progress;
      const room = this.#room(branch, ratio);
      if (left === chunk && left <= Math.max(saving ? 0 : room, short) - this.#joined) {
        joining.set(branch, left);
        this.#joined += left;
        depth = Math.max(depth, position);
      } else if (this.#starves(branch)) {
        if (room > 0) break;
        // What is saved is for this one; others may still join whatever their cost.
        saving = true;
      }
    }
    this.#spent = this.#joined > short;
    if (this.#spent) this.#budget.spend(this.#joined, depth, ratio);
    const items = all
      .filter(({ branch }) => branch.progress.left === 0 || joining.has(branch))
      .map(({ job, branch }) => ({ job, branch, count: joining.get(branch) ?? 0 }));
    return this.#budget.saves ? contiguous(items, running) : items;
  }

  /**
   * A chunk of one prompt: whole if no reply runs, otherwise the round's remaining tokens, if they are worth a decode.
   */
  chunk(running: readonly RunningItem[]): BatchItem[] {
    const all = evaluable(running);
    const ratio = promptsPerReply(all);
    const besideReplies = ratio < Infinity;
    const prompts = this.#inTurn(all);
    // In a round that saves its time for a later chunk, no prompt goes before another.
    if (!this.#spent && prompts.every(({ branch }) => this.#room(branch, ratio) === 0)) return [];
    let chosen: BatchItem | undefined;
    let saving = false;
    for (const { job, branch } of prompts) {
      const { left, chunk, position } = branch.progress;
      const full = this.#room(branch, ratio);
      // Prompts that joined whatever they cost take nothing of what was saved.
      const room = full - (besideReplies && !this.#budget.saves ? this.#joined : 0);
      if (full === 0 && this.#starves(branch)) saving = true;
      // The last token is left for `together`, where its logits are needed.
      const most = branch.progress.image?.image.whole === true && room < chunk ? this.#whenStarving(branch) : room;
      const count = besideReplies ? Math.min(chunk, left - 1, most) : chunk < left ? chunk : 0;
      const least = Math.min(this.#budget.least(position), chunk, left - 1);
      const worth = count > 0 && (!besideReplies || count >= least);
      if (worth && !chosen && !saving) chosen = { job, branch, count };
      this.#roundsWithout.set(branch, chosen?.branch === branch ? 0 : (this.#roundsWithout.get(branch) ?? 0) + 1);
    }
    if (chosen && besideReplies) this.#budget.spend(chosen.count, chosen.branch.progress.position, ratio);
    return chosen ? [chosen] : [];
  }

  /** A round begins: prompts may take a share of its time. */
  #begin(running: readonly RunningItem[]): void {
    const all = evaluable(running);
    const ratio = promptsPerReply(all);
    const wait = ratio < Infinity && all.some(({ branch }) => branch.progress.left > 0);
    this.#budget.begin(wait ? ratio : 0);
  }

  /** Tokens of this prompt that a round may take. */
  #room({ progress: { position, left, chunk } }: Branch, ratio: number): number {
    if (ratio === Infinity) return this.#chunk;
    const room = this.#budget.tokens(position, ratio, Math.min(left, chunk));
    return this.#replied ? room : Math.max(room, this.#budget.least(position));
  }

  /**
   * Prompts: those that lack their last token alone, whose work is done, then starving ones, then the one with the fewest tokens
   * left, so that a long prompt does not delay a short one, and of equal ones the one that arrived first (jobs' ids ascend).
   */
  #inTurn(all: readonly RunningItem[]): RunningItem[] {
    const prompts = all.filter(({ branch }) => branch.progress.left > 0);
    const isLast = ({ branch }: RunningItem): number => Number(branch.progress.left === 1);
    return prompts.sort(
      (a, b) =>
        isLast(b) - isLast(a) ||
        Number(this.#starves(b.branch)) - Number(this.#starves(a.branch)) ||
        a.branch.progress.left - b.branch.progress.left ||
        a.job.id - b.job.id,
    );
  }

  /** Room for an image that cannot be split: it has it once it has had no tokens for as many rounds as make it starve. */
  #whenStarving(branch: Branch): number {
    return this.#starves(branch) ? Infinity : 0;
  }

  #starves(branch: Branch): boolean {
    return (this.#roundsWithout.get(branch) ?? 0) >= STARVING_ROUNDS;
  }
}

/**
 * Adds a token of each prompt whose sequence lies between those of a step. llama.cpp computes contiguous ids together and reads all
 * weights for each further run of ids, which takes a GPU longer than the token: without it a step of 40 replies among 10 prompts
 * that waited took 90 ms in place of 60.
 */
export function contiguous(items: readonly BatchItem[], running: readonly RunningItem[]): BatchItem[] {
  const sequences = items.map(({ branch }) => branch.sequence);
  const [low, high] = [Math.min(...sequences), Math.max(...sequences)];
  const gaps = evaluable(running).filter(({ branch: { sequence, progress } }) => {
    const isGap = sequence > low && sequence < high && !sequences.includes(sequence);
    return isGap && progress.left > 1 && progress.image === undefined;
  });
  const fills = gaps.map(({ job, branch }): BatchItem => ({ job, branch, count: 1, fills: true }));
  return [...items, ...fills].sort((a, b) => a.branch.sequence - b.branch.sequence);
}

/**
 * Number of steps that may be computed in a run if no call comes from outside: all branches are replies, none in its
 * first step, from whose state others may wait to start, or wait for embeddings, which come from outside.
 */
export function stepsInRun(items: readonly BatchItem[], running: readonly RunningItem[]): number {
  if (items.some(({ count }) => count > 0)) return 1;
  if (items.length < running.length && items.length < running.filter(({ branch }) => !branch.awaitsImage).length)
    return 1;
  return Math.min(...items.map(({ branch }) => branch.ahead));
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

/** The cost of a prompt token grows with the tokens before it, so it is kept by depth, in steps of this many tokens. */
const DEPTH_STEP = 512;

/**
 * Smaller chunks are not worth a decode. On a GPU a decode reads all weights and starts all kernels whatever its size: on an H200
 * chunks of 64 tokens between the steps of 31 replies gave a prompt 2,400 tokens a second, and chunks of 256 alone gave
 * 8,400 (bench/results/gpu-first-run.md).
 */
export const LEAST_TOKENS = { cpu: 2, gpu: 256 } as const;

/**
 * A decode of fewer prompt tokens takes hardly longer than one of a single token, so a larger chunk's time cannot be told from its.
 * The least chunk has so many on the slowest GPU too.
 */
const FEW_TOKENS = 64;

/** The least chunk holds running replies up for at most as long as so many of their steps take: a slow GPU's is smaller. */
const LEAST_STEPS = 8;

/**
 * The number of prompt tokens that a round of the step loop may have beside running replies, so that they take the allowed share
 * of the time of the replies' own decode, including the fixed cost of one more decode. Each chunk's time per token determines
 * the size of the next. This spreads the fixed cost over the tokens, which is inexact when sizes differ; but the next
 * chunk is measured again, and the sizes converge to the one that takes the allowed time. Where that is smaller than the least
 * chunk, rounds without one save their time until it pays for one.
 */
export class PrefillBudget {
  /** Time for prompts over time for next tokens. */
  readonly #share: number;
  readonly #most: number;
  readonly #least: number;
  /** Whether a round may have no chunk, and save its time. Otherwise it has at least the least one. */
  readonly saves: boolean;
  /** Milliseconds of a decode of only next tokens; undefined: none was measured. */
  #decodeMs: number | undefined;
  /** Milliseconds that this round and those before it, since the last chunk, may use; and those that this round has used. */
  #savedMs = 0;
  #usedMs = 0;
  /** Milliseconds per prompt token, by depth in DEPTH_STEP. */
  readonly #msPerToken: (number | undefined)[] = [];

  /** At most `most` tokens a round, and `share` of the time of next tokens, but at least `least` tokens. */
  constructor(share: number, most: number, least: number) {
    this.#share = share;
    this.#most = most;
    this.#least = Math.min(least, most);
    this.saves = least > LEAST_TOKENS.cpu;
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
    if (tokens < Math.min(this.#least, FEW_TOKENS)) return;
    const at = Math.floor(depth / DEPTH_STEP);
    this.#msPerToken[at] = mixed(this.#known(at), ms / tokens, NEWEST_CHUNK);
  }

  /** Fewer tokens after `depth` others are not worth a decode. */
  least(depth: number): number {
    const each = this.#each(depth);
    if (!this.saves || each === undefined) return this.#least;
    const held = Math.floor((LEAST_STEPS * this.decodeMs) / each);
    return Math.min(this.#least, Math.max(held, FEW_TOKENS));
  }

  /** A round begins. Prompts that wait beside it may use `ratio` times the share of its time; 0: no prompt waits. */
  begin(ratio: number): void {
    this.#usedMs = 0;
    this.#savedMs = ratio === 0 ? 0 : this.#savedMs + this.#roundMs(ratio);
  }

  /** The planner gave this round so many prompt tokens, after `depth` others, which use up what was saved. */
  spend(tokens: number, depth: number, ratio: number): void {
    const each = this.#each(depth) ?? 0;
    const bound = this.least(depth) * each + this.#roundMs(ratio);
    this.#usedMs += tokens * each;
    this.#savedMs = Math.max(0, Math.min(this.#savedMs, bound) - tokens * each);
  }

  /**
   * Tokens after `depth` others that this round may have of a prompt with `left` more to its chunk's end, with `ratio` times the
   * share: all, as long as nothing was measured. 0: fewer than are worth a decode, so that a later round has them.
   */
  tokens(depth: number, ratio = 1, left = Infinity): number {
    const each = this.#each(depth);
    if (!(this.decodeMs > 0) || each === undefined) return this.#most;
    const least = this.least(depth);
    const used = this.saves ? this.#usedMs : 0;
    const fit = Math.floor((this.#roundMs(ratio) - used) / each);
    if (fit >= least) return Math.min(fit, this.#most);
    if (!this.saves) return least;
    const wanted = Math.min(least, left);
    return this.#savedMs >= wanted * each ? wanted : 0;
  }

  #roundMs(ratio: number): number {
    return ratio * this.#share * this.decodeMs;
  }

  /** Milliseconds per token; undefined: not known, or too short to be measured. */
  #each(depth: number): number | undefined {
    const each = this.#known(Math.floor(depth / DEPTH_STEP));
    return each !== undefined && each > 0 ? each : undefined;
  }

  /** Without a measurement, the one before it; before the first, the first. */
  #known(at: number): number | undefined {
    for (let i = Math.min(at, this.#msPerToken.length - 1); i >= 0; i--) {
      if (this.#msPerToken[i] !== undefined) return this.#msPerToken[i];
    }
    return this.#msPerToken.find((each) => each !== undefined);
  }
}

function mixed(known: number | undefined, newest: number, weight: number): number {
  return known === undefined ? newest : known + weight * (newest - known);
}
