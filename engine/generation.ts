import type { Decoder, Part, PartResult } from './decoder.js';
import type { GenerateJob, Output } from './protocol.js';
import { Reply } from './reply.js';
import type { ModelTokens, Task } from './task.js';

/**
 * A chat completion: `n` replies to one prompt, one after the other on one sequence. The prompt is evaluated once; for
 * each further reply the sequence is cut back to it, and its last token evaluated again for its logits.
 */
export class Generation implements Task {
  readonly id: number;
  readonly sequence: number;
  readonly alone = false;
  readonly #job: GenerateJob;
  readonly #model: ModelTokens;
  readonly #decoder: Decoder;
  /** Prompt tokens evaluated. */
  #filled = 0;
  #choice = 0;
  #reply: Reply;
  #rewind = false;

  constructor(id: number, sequence: number, job: GenerateJob, model: ModelTokens, decoder: Decoder) {
    this.id = id;
    this.sequence = sequence;
    this.#job = job;
    this.#model = model;
    this.#decoder = decoder;
    this.#reply = this.#newReply();
  }

  get prefillLeft(): number {
    return this.#job.prompt.length - this.#filled;
  }

  get done(): boolean {
    return this.#choice >= this.#job.n;
  }

  part(budget: number): Part {
    const { sequence } = this;
    const left = this.prefillLeft;
    if (left > budget) {
      const tokens = this.#job.prompt.subarray(this.#filled, this.#filled + budget);
      this.#filled += budget;
      return { kind: 'prefill', sequence, tokens };
    }
    const tokens = left > 0 ? this.#job.prompt.subarray(this.#filled) : Uint32Array.of(this.#reply.last);
    this.#filled += left;
    return { kind: 'sample', sequence, tokens, sampler: this.#reply.sampler };
  }

  accept(result: Exclude<PartResult, { kind: 'fault' }>, out: Output[]): void {
    if (result.kind !== 'token') return;
    this.#reply.accept(result.token, out);
    if (this.#reply.over) this.#nextReply();
  }

  async rewind(decoder: Decoder): Promise<void> {
    if (!this.#rewind) return;
    this.#rewind = false;
    await decoder.truncate(this.sequence, this.#filled);
  }

  dispose(): void {
    this.#reply.dispose();
  }

  #nextReply(): void {
    this.#reply.dispose();
    this.#choice += 1;
    if (this.done) return;
    this.#filled = this.#job.prompt.length - 1;
    this.#rewind = true;
    this.#reply = this.#newReply();
  }

  #newReply(): Reply {
    return new Reply(this.id, this.#choice, this.#job, this.#model, this.#decoder);
  }
}
