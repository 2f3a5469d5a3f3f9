import type { CacheKey } from '../protocol/cache-key.js';
import { promptIds, type Prompt } from '../protocol/prompt.js';

/**
 * A prompt with its fixed split into chunks. The split affects the last digits of what follows, so two prompts share a
 * state bit for bit only if their splits agree.
 */
export class PromptPlan {
  readonly tokens: Uint32Array;
  /** Where its chunks end, ascending; the last is the number of tokens. */
  readonly ends: readonly number[];
  /** Of the states that it may start from and that it makes. */
  readonly key: CacheKey;
  /** Of a model whose state cannot be cut it is saved at each end up to here; 0: at none. */
  readonly savedUpTo: number;

  /**
   * Each segment is split from its own start on into chunks of `chunk` tokens, the last of them shorter. None is empty. A
   * chunk also ends at `savedUpTo`.
   */
  constructor(prompt: Prompt, chunk: number, key: CacheKey, savedUpTo = 0) {
    this.key = key;
    this.tokens = promptIds(prompt);
    this.savedUpTo = savedUpTo;
    const ends: number[] = [];
    let start = 0;
    for (const { tokens } of prompt) {
      const { length } = tokens;
      for (let end = chunk; end < length; end += chunk) ends.push(start + end);
      if (length > 0) ends.push(start + length);
      start += length;
    }
    if (savedUpTo > 0 && !ends.includes(savedUpTo))
      ends.splice(
        ends.findIndex((end) => end > savedUpTo),
        0,
        savedUpTo,
      );
    this.ends = ends;
  }
}

/** The progress of a sequence in a plan. */
export class Feed {
  readonly #plan: PromptPlan;
  #position: number;
  /** Index of the first end past the position. */
  #next = 0;

  /** `held`: leading tokens of the plan that are already in the sequence, fewer than all. */
  constructor(plan: PromptPlan, held: number) {
    this.#plan = plan;
    this.#position = held;
    this.#catchUp();
  }

  /** Tokens evaluated. */
  get position(): number {
    return this.#position;
  }

  /** Tokens still to be evaluated. */
  get left(): number {
    return this.#plan.tokens.length - this.#position;
  }

  /** Tokens up to the end of the current chunk; equal to `left` in the last one. */
  get chunk(): number {
    return (this.#plan.ends[this.#next] ?? this.#position) - this.#position;
  }

  /** Whether the state is to be saved where it is. */
  get saves(): boolean {
    return this.#position <= this.#plan.savedUpTo && this.#plan.ends[this.#next - 1] === this.#position;
  }

  /** The next `count` tokens, which count as evaluated from now on. */
  take(count: number): Uint32Array {
    const tokens = this.#plan.tokens.subarray(this.#position, this.#position + count);
    this.#position += tokens.length;
    this.#catchUp();
    return tokens;
  }

  #catchUp(): void {
    const { ends } = this.#plan;
    while ((ends[this.#next] ?? Infinity) <= this.#position) this.#next += 1;
  }
}
