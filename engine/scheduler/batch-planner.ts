import type { PrefillBudget } from './prefill-budget.js';
import type { Branch, RunningItem } from './job.js';

/** A branch in the next decode, with this many tokens of its prompt; 0: its reply's next token. */
export interface BatchItem extends RunningItem {
  readonly count: number;
  /** Its token only closes a gap between sequences, and costs hardly anything. */
  readonly fills?: true;
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
export class BatchPlanner {
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
    return this.#budget.saves ? filled(items, running) : items;
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
function filled(items: readonly BatchItem[], running: readonly RunningItem[]): BatchItem[] {
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
function evaluable(running: readonly RunningItem[]): RunningItem[] {
  return running.filter(({ job, branch }) => !job.work.isolated && branch.awaitsImage === undefined);
}

/** Waiting prompts per running reply, at least 1; Infinity if none runs. */
function promptsPerReply(all: readonly RunningItem[]): number {
  const replies = all.filter(({ branch }) => branch.progress.left === 0).length;
  return replies === 0 ? Infinity : Math.max(1, (all.length - replies) / replies);
}
