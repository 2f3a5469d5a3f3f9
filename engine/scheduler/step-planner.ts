/**
 * What each round of the step loop decodes on a GPU: the replies' next tokens, then prompt tokens for what is left of a target for the
 * time of both, first come, first served; those of background jobs (protocol/jobs.ts) last.
 *
 * A GPU's step of replies is short, so a share of its time, as a CPU's prompts get (batch-planner.ts), is too small a budget: with half
 * of it, 64 callers of an 8 B model on an H200 waited up to 17 s for a first token. What callers notice is the gap between two tokens of
 * a reply, which is one round. So the round's time is the budget, as a token budget a step is in vLLM and a chunk's size in SGLang.
 * Several prompts share a decode: each has a fixed cost, since all weights are read and all kernels started. Their ids may not be
 * contiguous; llama.cpp then splits the decode. Only the last of them may be left unfinished, so that first tokens come in the order
 * of arrival.
 */
import {
  backgroundLast,
  CostByDepth,
  evaluable,
  IsolatedTurns,
  mixed,
  type BatchItem,
  type Planner,
} from './batch-planner.js';
import type { RunningItem } from './job.js';

/** The target where no setting names one: a reader of a stream hardly notices a pause of this length, ms. */
export const STEP_MS = 100;
/** Fewer prompt tokens are not worth a decode, whatever the target. */
export const LEAST_CHUNK = 64;
/** Kernels of matrices compute this many columns at a time. */
const TILE = 128;

/** The weight of the newest decode in the averages: a GPU's vary little, and change with the number of sequences. */
const NEWEST = 1 / 4;
/** Tokens of depth. */
const DEPTH_STEP = 2048;

export class StepPlanner implements Planner {
  readonly #chunk: number;
  readonly #targetMs: number;
  #decodeMs = 0;
  /** A decode's fixed cost included. */
  readonly #prompt = new CostByDepth(DEPTH_STEP, NEWEST);
  readonly #isolated = new IsolatedTurns();
  /** Whether a reply is in this round's decode. */
  #replied = false;

  /** `chunk`: where prompts are split, and the most prompt tokens in one decode. `targetMs`: the time of a round with replies. */
  constructor(chunk: number, targetMs: number) {
    this.#chunk = chunk;
    this.#targetMs = targetMs;
  }

  get decodeMs(): number {
    return this.#decodeMs;
  }

  isolated(running: readonly RunningItem[]): BatchItem[] {
    return this.#isolated.next(running);
  }

  /** Each reply's next token and each prompt's last one: all that need logits. */
  together(running: readonly RunningItem[]): BatchItem[] {
    const items = evaluable(running)
      .filter(({ branch: { pending, progress } }) => pending === undefined && progress.left <= 1)
      .map(({ job, branch }): BatchItem => ({ job, branch, count: branch.progress.left }));
    this.#replied = items.some(({ count }) => count === 0);
    return items.length === 0 ? [] : contiguous(items, running);
  }

  chunk(running: readonly RunningItem[]): BatchItem[] {
    const prompts = evaluable(running)
      .filter(({ branch }) => branch.progress.left > 1)
      .sort((a, b) => backgroundLast(a, b) || a.job.id - b.job.id || a.branch.sequence - b.branch.sequence);
    const items: BatchItem[] = [];
    let room = 0;
    for (const { job, branch } of prompts) {
      const { left, chunk, position, image } = branch.progress;
      if (items.length === 0) room = this.#tokens(position);
      // An image is decoded alone, one that attends to all of itself as a whole.
      if (image !== undefined && items.length > 0) break;
      const most = image?.image.whole === true ? chunk : Math.min(chunk, room);
      // The last token is left for `together`.
      const count = Math.min(most, left - 1);
      if (items.length > 0 && count < Math.min(LEAST_CHUNK, left - 1)) break;
      items.push({ job, branch, count });
      room -= count;
      // Until its prompt is done, those that came later would get their first token before it.
      if (image !== undefined || count < left - 1 || room <= 0) break;
    }
    return items.sort((a, b) => a.branch.sequence - b.branch.sequence);
  }

  learn(counts: readonly number[], steps: number, depth: number, ms: number): void {
    const prompt = counts.reduce((sum, count) => sum + (count > 1 ? count : 0), 0);
    if (prompt === 0) this.#decodeMs = mixed(this.#decodeMs || undefined, ms / steps, NEWEST);
    else if (prompt >= LEAST_CHUNK && counts.every((count) => count > 0)) this.#prompt.learn(depth, ms / prompt);
  }

  tokenMs(depth: number): number | undefined {
    return this.#prompt.at(depth);
  }

  /** Tokens after `depth` others that this round may have: all that a decode takes, as long as nothing was measured or no reply waits. */
  #tokens(depth: number): number {
    const each = this.tokenMs(depth);
    if (!this.#replied || each === undefined || this.#decodeMs === 0) return this.#chunk;
    const fit = Math.floor((this.#targetMs - this.#decodeMs) / each / TILE) * TILE;
    return Math.min(this.#chunk, Math.max(fit, LEAST_CHUNK));
  }
}

/**
 * Adds a token of each prompt whose sequence lies between those of a step. llama.cpp computes contiguous ids together and reads all
 * weights for each further run of ids, which takes a GPU longer than the token: without it a step of 40 replies among 10 prompts
 * that waited took 90 ms in place of 60.
 */
function contiguous(items: readonly BatchItem[], running: readonly RunningItem[]): BatchItem[] {
  const sequences = items.map(({ branch }) => branch.sequence);
  const [low, high] = [Math.min(...sequences), Math.max(...sequences)];
  const gaps = evaluable(running).filter(({ branch: { sequence, progress } }) => {
    const isGap = sequence > low && sequence < high && !sequences.includes(sequence);
    return isGap && progress.left > 1 && progress.image === undefined;
  });
  const fills = gaps.map(({ job, branch }): BatchItem => ({ job, branch, count: 1, fills: true }));
  return [...items, ...fills].sort((a, b) => a.branch.sequence - b.branch.sequence);
}
