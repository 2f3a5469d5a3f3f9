import type { Decoder, Sampler } from './decoder.js';
import { ReplyText } from './output/reply-text.js';
import type { ReplyPiece } from './output/thought.js';
import type { FinishReason, GenerateJob, Output } from './protocol.js';
import type { ModelTokens } from './task.js';

const NOTHING: ReplyPiece = { reasoning: '', content: '' };

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
  /** Control tokens that have text in this reply. */
  readonly #markers: ReadonlySet<string>;
  /** Completion tokens sampled, the end token among them. */
  #tokens = 0;
  /** Of these, those up to the end of the last thought, its marks among them. */
  #reasoningTokens = 0;
  #last = 0;
  #over = false;

  constructor(id: number, choice: number, job: GenerateJob, model: ModelTokens, decoder: Decoder) {
    this.sampler = decoder.sampler({ ...job, seed: (job.seed + choice) >>> 0 });
    this.#id = id;
    this.#choice = choice;
    this.#maxTokens = job.maxTokens;
    this.#model = model;
    this.#text = new ReplyText(job.stops, job.format?.thought);
    this.#markers = new Set(job.format?.markers);
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
    let piece = NOTHING;
    const thinking = this.#text.isThinking();
    if (this.#model.isEnd(token)) {
      end = { reason: 'stop', matchedStop: token };
    } else {
      piece = this.#text.push(this.#bytes(token));
      if (this.#text.matchedStop !== undefined) end = { reason: 'stop', matchedStop: this.#text.matchedStop };
      else if (this.#tokens >= this.#maxTokens) end = { reason: 'length' };
    }
    if (thinking || this.#text.isThinking()) this.#reasoningTokens = this.#tokens;
    if (end) {
      const last = this.#text.end();
      piece = { reasoning: piece.reasoning + last.reasoning, content: piece.content + last.content };
    }
    this.#emit(piece, out);
    if (!end) return;
    this.#over = true;
    const counts = { completionTokens: this.#tokens, reasoningTokens: this.#reasoningTokens };
    out.push({ id: this.#id, choice: this.#choice, kind: 'finished', ...end, ...counts });
  }

  #emit({ reasoning, content }: ReplyPiece, out: Output[]): void {
    const common = { id: this.#id, choice: this.#choice, kind: 'piece', tokens: this.#tokens } as const;
    if (reasoning !== '') out.push({ ...common, channel: 'reasoning', text: reasoning });
    if (content !== '') out.push({ ...common, channel: 'content', text: content });
  }

  #bytes(token: number): Uint8Array {
    if (this.#markers.size > 0) {
      const name = this.#model.control(token);
      if (name !== undefined && this.#markers.has(name)) return Buffer.from(name);
    }
    return this.#model.bytes(token);
  }

  /** Lets go of the sampler. Idempotent. */
  dispose(): void {
    this.sampler.dispose();
  }
}
