import type { Decoder, Part, PartResult, Sampler } from './decoder.js';
import { ReplyText } from './output/reply-text.js';
import type { FinishReason, GenerateJob, Output } from './protocol.js';
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
    const reply = this.#reply;
    const { id } = this;
    reply.last = result.token;
    reply.tokens += 1;

    let end: { reason: FinishReason; matchedStop?: string | number } | undefined;
    let text = '';
    if (this.#model.isEnd(result.token)) {
      end = { reason: 'stop', matchedStop: result.token };
    } else {
      text = reply.text.push(this.#model.bytes(result.token));
      if (reply.text.matchedStop !== undefined) end = { reason: 'stop', matchedStop: reply.text.matchedStop };
      else if (reply.tokens >= this.#job.maxTokens) end = { reason: 'length' };
    }
    if (end) text += reply.text.end();
    if (text !== '') {
      out.push({ id, kind: 'piece', choice: this.#choice, channel: 'content', text, tokens: reply.tokens });
    }
    if (!end) return;
    out.push({
      id,
      kind: 'finished',
      choice: this.#choice,
      ...end,
      completionTokens: reply.tokens,
      reasoningTokens: 0,
    });
    this.#nextReply();
  }

  async rewind(decoder: Decoder): Promise<void> {
    if (!this.#rewind) return;
    this.#rewind = false;
    await decoder.truncate(this.sequence, this.#filled);
  }

  dispose(): void {
    this.#reply.sampler.dispose();
  }

  #nextReply(): void {
    this.#reply.sampler.dispose();
    this.#choice += 1;
    if (this.done) return;
    this.#filled = this.#job.prompt.length - 1;
    this.#rewind = true;
    this.#reply = this.#newReply();
  }

  #newReply(): Reply {
    const job = this.#job;
    return {
      sampler: this.#decoder.sampler({ ...job, seed: (job.seed + this.#choice) >>> 0 }),
      text: new ReplyText(job.stops),
      tokens: 0,
      last: 0,
    };
  }
}

interface Reply {
  readonly sampler: Sampler;
  readonly text: ReplyText;
  /** Completion tokens sampled, the end token among them. */
  tokens: number;
  /** The token sampled last: the next one to be evaluated. */
  last: number;
}
