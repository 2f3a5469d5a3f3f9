import type { Decoder, Part, PartResult } from './decoder.js';
import type { Output, ScoreJob, ScoreQuestion } from './protocol.js';
import type { Task } from './task.js';

/**
 * A decision request: its questions scored in turn on one sequence. The input is evaluated once; each question's tail is
 * evaluated after it, scored at its last token, and cut off again. Decodes are shared with nobody and split at fixed
 * places, so that an answer depends on its own question and input alone.
 */
export class Scoring implements Task {
  readonly id: number;
  readonly sequence: number;
  readonly alone = true;
  readonly #job: ScoreJob;
  /** Tokens of a decode: where prompts are split is fixed, since it moves the last digits. */
  readonly #chunk: number;
  #inputFilled = 0;
  #question = 0;
  #tailFilled = 0;
  #rewind = false;

  constructor(id: number, sequence: number, job: ScoreJob, chunk: number) {
    this.id = id;
    this.sequence = sequence;
    this.#job = job;
    this.#chunk = chunk;
  }

  get prefillLeft(): number {
    return this.#job.input.length - this.#inputFilled + ((this.#current?.tail.length ?? 0) - this.#tailFilled);
  }

  get done(): boolean {
    return this.#question >= this.#job.questions.length;
  }

  get #current(): ScoreQuestion | undefined {
    return this.#job.questions[this.#question];
  }

  part(): Part {
    const { sequence } = this;
    const { input } = this.#job;
    if (this.#inputFilled < input.length) {
      const tokens = input.subarray(this.#inputFilled, this.#inputFilled + this.#chunk);
      this.#inputFilled += tokens.length;
      return { kind: 'prefill', sequence, tokens };
    }
    const question = this.#current;
    if (!question) throw new Error('asked for a part after the last question');
    const tokens = question.tail.subarray(this.#tailFilled, this.#tailFilled + this.#chunk);
    this.#tailFilled += tokens.length;
    if (this.#tailFilled < question.tail.length) return { kind: 'prefill', sequence, tokens };
    return { kind: 'score', sequence, tokens, labels: question.labels };
  }

  accept(result: Exclude<PartResult, { kind: 'fault' }>, out: Output[]): void {
    if (result.kind !== 'scores') return;
    const { probabilities, labelMass } = distribution(result.logprobs, this.#job.temperature);
    out.push({ id: this.id, kind: 'answer', question: this.#question, probabilities, labelMass });
    this.#question += 1;
    this.#tailFilled = 0;
    this.#rewind = !this.done;
  }

  async rewind(decoder: Decoder): Promise<void> {
    if (!this.#rewind) return;
    this.#rewind = false;
    await decoder.truncate(this.sequence, this.#job.input.length);
  }

  dispose(): void {
    // Nothing held.
  }
}

/**
 * The labels' log-probabilities as a distribution over the labels alone (softmax in float64 at `temperature`), and the
 * share of the whole next-token distribution that fell on them, which the temperature does not touch.
 */
export function distribution(
  logprobs: Float64Array,
  temperature: number,
): { probabilities: Float64Array; labelMass: number } {
  const max = Math.max(...logprobs);
  const weights = logprobs.map((logprob) => Math.exp((logprob - max) / temperature));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const mass = logprobs.reduce((sum, logprob) => sum + Math.exp(logprob), 0);
  return { probabilities: weights.map((weight) => weight / total), labelMass: Math.min(1, mass) };
}
