import type { Decoder, Sampler } from './decoder.js';
import { heldBehind } from './grammar/gbnf.js';
import { ReplyText } from './output/reply-text.js';
import type { FinishReason, GenerateJob, Output } from './protocol.js';
import type { ModelTokens } from './task.js';

/** What ended a reply. */
interface End {
  readonly reason: FinishReason;
  readonly matchedStop?: string | number;
}

/** One reply of a chat completion: its sampler, its text so far, and when it is over. Knows no sequence. */
export class Reply {
  readonly sampler: Sampler;
  readonly #id: number;
  readonly #choice: number;
  readonly #maxTokens: number;
  readonly #model: ModelTokens;
  readonly #text: ReplyText;
  /** Completion tokens sampled, the end token among them. */
  #tokens = 0;
  #last = 0;
  #over = false;

  constructor(id: number, choice: number, job: GenerateJob, model: ModelTokens, decoder: Decoder) {
    this.sampler = decoder.sampler({ ...job, seed: (job.seed + choice) >>> 0 });
    const held = job.format?.grammar;
    if (held) this.sampler.hold(held.after === undefined ? held.gbnf : heldBehind(held.after, held.gbnf), []);
    this.#id = id;
    this.#choice = choice;
    this.#maxTokens = job.maxTokens;
    this.#model = model;
    this.#text = new ReplyText(job.stops);
  }

  /** The token sampled last: the next one to be evaluated. */
  get last(): number {
    return this.#last;
  }

  /** Its `finished` is out. */
  get over(): boolean {
    return this.#over;
  }

  /** Takes the token sampled next and adds what became certain to `out`, the end included. */
  accept(token: number, out: Output[]): void {
    this.#last = token;
    this.#tokens += 1;
    let end: End | undefined;
    let text = '';
    if (this.#model.isEnd(token)) {
      end = { reason: 'stop', matchedStop: token };
    } else {
      text = this.#text.push(this.#model.bytes(token));
      if (this.#text.matchedStop !== undefined) end = { reason: 'stop', matchedStop: this.#text.matchedStop };
      else if (this.#tokens >= this.#maxTokens) end = { reason: 'length' };
    }
    if (end) text += this.#text.end();
    const common = { id: this.#id, choice: this.#choice };
    if (text !== '') out.push({ ...common, kind: 'piece', channel: 'content', text, tokens: this.#tokens });
    if (!end) return;
    this.#over = true;
    out.push({ ...common, kind: 'finished', ...end, completionTokens: this.#tokens, reasoningTokens: 0 });
  }

  /** Lets go of the sampler. Idempotent. */
  dispose(): void {
    this.sampler.dispose();
  }
}
