import type { StepPart, PartResult } from './decoder.js';
import { PromptPlan, PromptProgress } from './prompt-plan.js';
import type { Output, ScoreJob, ScoreQuestion, StateJob } from '../protocol/jobs.js';
import { tokenPrompt } from '../protocol/prompt.js';
import type { Branch, Work, WorkLimits } from './job.js';
import type { CacheKey } from '../protocol/cache-key.js';

/**
 * A decision request: questions about one input. The input is evaluated once; each question's tail is evaluated after
 * it, scored at its last token, and then truncated. Isolated questions have their own decodes, split at fixed
 * positions, so that an answer depends only on its question and input; otherwise questions on copies of the input's
 * state are evaluated together.
 */
export class Scoring implements Work {
  readonly items: number;
  readonly terms: StateJob;
  readonly isolated: boolean;
  readonly countsEach = true;
  readonly reuse: 'any' | 'same-split';
  readonly #id: number;
  readonly #job: ScoreJob;
  /** Tokens of a decode: prompts are split at fixed positions, since the split affects the last digits. */
  readonly #chunk: number;
  readonly #key: CacheKey;
  /** The plan that was made last: it is asked for before its item begins, and then. */
  #planned: { readonly item: number; readonly plan: PromptPlan } | undefined;
  /** Its prompts' memory is used by nothing else. */
  readonly #ownsPrompt: boolean;

  constructor(id: number, job: ScoreJob, limits: WorkLimits) {
    this.#key = { scope: job.scope, ...limits.origin };
    this.#ownsPrompt = limits.ownsPrompts === true;
    this.terms = job;
    this.items = job.questions.length;
    this.isolated = job.isolate;
    this.reuse = job.isolate ? 'same-split' : 'any';
    this.#id = id;
    this.#job = job;
    this.#chunk = limits.prefillTokensPerStep;
  }

  plan(item: number): PromptPlan {
    if (this.#planned?.item !== item) {
      const { tail } = this.#question(item);
      const { input } = this.#job;
      const points = { upTo: input.length, exactly: true };
      const plan = new PromptPlan([...tokenPrompt(input), ...tokenPrompt(tail)], this.#chunk, this.#key, points);
      this.#planned = { item, plan };
    }
    return this.#planned.plan;
  }

  branch(item: number, sequence: number, keep: number): Branch {
    const plan = this.plan(item);
    const { labels, temperature } = this.#question(item);
    const answer = (logprobs: Float64Array): Output => {
      const { probabilities, labelMass } = distribution(logprobs, this.#job.temperature * temperature);
      return { id: this.#id, kind: 'answer', question: item, probabilities, labelMass };
    };
    return new QuestionBranch(sequence, plan, keep, labels, answer);
  }

  /** At the input's end, so that the questions' tails can be in one decode. */
  shareable({ progress }: Branch): boolean {
    return progress.position >= this.#job.input.length;
  }

  wipe(): void {
    if (!this.#ownsPrompt) return;
    this.#planned?.plan.tokens.fill(0);
    this.#job.input.fill(0);
    for (const { tail } of this.#job.questions) tail.fill(0);
  }

  #question(item: number): ScoreQuestion {
    const question = this.#job.questions[item];
    if (!question) throw new RangeError(`no question ${item}`);
    return question;
  }
}

class QuestionBranch implements Branch {
  readonly sequence: number;
  readonly progress: PromptProgress;
  readonly ahead = { tokens: 1, moves: false };
  over = false;
  /** Its own copy of input and tail. */
  readonly #tokens: Uint32Array;
  readonly #labels: Uint32Array;
  readonly #answer: (logprobs: Float64Array) => Output;

  constructor(
    sequence: number,
    plan: PromptPlan,
    keep: number,
    labels: Uint32Array,
    answer: (logprobs: Float64Array) => Output,
  ) {
    this.sequence = sequence;
    this.#tokens = plan.tokens;
    this.progress = new PromptProgress(plan, keep);
    this.#labels = labels;
    this.#answer = answer;
  }

  part(count: number): StepPart {
    const { sequence, progress } = this;
    const tokens = progress.take(count);
    if (progress.left > 0) return { kind: 'prefill', sequence, tokens };
    return { kind: 'score', sequence, tokens, labels: this.#labels };
  }

  accept(result: Exclude<PartResult, { kind: 'fault' }>, out: Output[]): void {
    if (result.kind !== 'scores') return;
    this.over = true;
    out.push(this.#answer(result.logprobs));
  }

  dispose(): void {
    this.#tokens.fill(0);
  }
}

/**
 * The labels' log-probabilities as a distribution over the labels only (softmax in float64 at `temperature`), and the
 * share of the whole next-token distribution on them, which does not depend on the temperature.
 */
export function distribution(
  logprobs: Float64Array,
  temperature: number,
): { probabilities: Float64Array; labelMass: number } {
  const max = Math.max(...logprobs);
  // The product of a small temperature and a model's own may be 0.
  const divisor = Math.max(temperature, Number.MIN_VALUE);
  const weights = logprobs.map((logprob) => Math.exp((logprob - max) / divisor));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const mass = logprobs.reduce((sum, logprob) => sum + Math.exp(logprob), 0);
  return { probabilities: weights.map((weight) => weight / total), labelMass: Math.min(1, mass) };
}
