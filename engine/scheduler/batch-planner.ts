import type { PrefillBudget } from './prefill-budget.js';
import type { Running } from './jobs.js';
import type { Branch } from './task.js';

/** A branch in the coming decode, with so many tokens of its prompt; 0: its reply's next token. */
export interface BatchItem extends Running {
  readonly count: number;
}

/** A prompt that got nothing for so many rounds goes before shorter ones. */
const PATIENCE = 8;

/**
 * So many tokens of prompts' ends join a step whatever it takes: waiting would hold up most chats' first token by several
 * steps, and costs running replies one longer gap an arrival. As the time for prompts it grows where more prompts wait
 * than replies run, up to a whole chunk: a seat's first token is worth no less than another's next one.
 */
export const SHORT_TOKENS = 96;

/**
 * Who decodes what in one round of the step loop: `isolated`, `together` and `chunk` in this order, each given all that go
 * on, in sequence order.
 */
export class BatchPlanner {
  /** Where prompts are split, and the most prompt tokens in one decode. */
  readonly #whole: number;
  readonly #pace: PrefillBudget;
  /** The sequence of the isolated job that went last: the next one in order goes first. */
  #lastIsolated = -1;
  /** Rounds that prompts got nothing in, in a row. */
  readonly #satOut = new WeakMap<Branch, number>();
  /** Prompt tokens that joined the replies in this round. */
  #joined = 0;

  constructor(whole: number, pace: PrefillBudget) {
    this.#whole = whole;
    this.#pace = pace;
  }

  /** One whole chunk of one job that shares its decodes with nobody; they take turns, in sequence order. */
  isolated(running: readonly Running[]): BatchItem[] {
    const all = running.filter(({ task }) => task.work.alone);
    const next = all.find(({ branch }) => branch.sequence > this.#lastIsolated) ?? all[0];
    if (!next) return [];
    this.#lastIsolated = next.branch.sequence;
    return [{ count: next.branch.feed.chunk, ...next }];
  }

  /**
   * Every reply's next token, and the last chunks of prompts as far as the round's tokens go. What is pending sits it out: the
   * others do not wait for its grammar.
   */
  together(running: readonly Running[]): BatchItem[] {
    const all = running.filter(({ task, branch }) => !task.work.alone && branch.pending === undefined);
    const joining = new Map<Branch, number>();
    this.#joined = 0;
    const times = crowding(all);
    const short = Math.min(SHORT_TOKENS * times, this.#whole);
    for (const { branch } of this.#inTurn(all)) {
      const { left, chunk } = branch.feed;
      const room = Math.max(this.#room(branch, times), short) - this.#joined;
      if (left === chunk && left <= room) {
        joining.set(branch, left);
        this.#joined += left;
      } else if (this.#starves(branch)) break;
    }
    return all
      .filter(({ branch }) => branch.feed.left === 0 || joining.has(branch))
      .map(({ task, branch }) => ({ task, branch, count: joining.get(branch) ?? 0 }));
  }

  /** A chunk of one prompt: whole when no reply runs, else what the round's tokens leave, if that is worth a decode. */
  chunk(running: readonly Running[]): BatchItem[] {
    const all = running.filter(({ task }) => !task.work.alone);
    const times = crowding(all);
    const company = times < Infinity;
    let chosen: BatchItem | undefined;
    for (const { task, branch } of this.#inTurn(all)) {
      const { left, chunk } = branch.feed;
      const room = this.#room(branch, times) - (company ? this.#joined : 0);
      // The last token is for `together`: its logits are wanted there.
      const count = company ? Math.min(chunk, left - 1, room) : chunk < left ? chunk : 0;
      const worth = count > 0 && (!company || count >= Math.min(this.#pace.least, chunk, left - 1));
      if (worth && !chosen) chosen = { task, branch, count };
      this.#satOut.set(branch, chosen?.branch === branch ? 0 : (this.#satOut.get(branch) ?? 0) + 1);
    }
    return chosen ? [chosen] : [];
  }

  /** Tokens of this prompt that a round may take. */
  #room({ feed }: Branch, times: number): number {
    return times < Infinity ? this.#pace.tokens(feed.position, times) : this.#whole;
  }

  /** Prompts, those that starve first, then the one with least left, so that a short one is not held up by a long one. */
  #inTurn(all: readonly Running[]): Running[] {
    const prompts = all.filter(({ branch }) => branch.feed.left > 0);
    return prompts.sort(
      (a, b) =>
        Number(this.#starves(b.branch)) - Number(this.#starves(a.branch)) || a.branch.feed.left - b.branch.feed.left,
    );
  }

  #starves(branch: Branch): boolean {
    return (this.#satOut.get(branch) ?? 0) >= PATIENCE;
  }
}

/** Prompts that wait for each reply that runs, at least 1; Infinity where none runs. */
function crowding(all: readonly Running[]): number {
  const replies = all.filter(({ branch }) => branch.feed.left === 0).length;
  return replies === 0 ? Infinity : Math.max(1, (all.length - replies) / replies);
}
