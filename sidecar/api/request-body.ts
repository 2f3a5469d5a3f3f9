import { createHash } from 'node:crypto';
import type { BodyForm } from '../contracts/requests.js';
import type { Body } from '../http/body.js';
import type { Signal } from '../lib/abort.js';
import type {
  Checked,
  ModelPromptVersion,
  OpenBody,
  PromptMaker,
  RequestImage,
  Tokenized,
} from '../prompts/prompt-maker.js';
import type { WeightedAccount } from '../lib/fair-share.js';

/** Bytes that are hashed at each end of a body; a shorter body is hashed whole. */
const END_BYTES = 32 * 1024;

/**
 * A request's body and the prompts that are made of it. The body is read until its prompt is made; until an engine has begun the prompt
 * it may be needed once more, for a replica whose tokenizer or template is another one.
 */
export class RequestBody {
  readonly #received: Body;
  readonly #form: BodyForm;
  readonly #owner: WeightedAccount;
  readonly #prompts: PromptMaker;
  #open: OpenBody;
  /** Equal for requests of one route with the same body. Of a long body only its ends and its length are compared. */
  readonly digest: string;

  /** `owner`: whose host time it is. */
  constructor(received: Body, form: BodyForm, owner: WeightedAccount, prompts: PromptMaker) {
    this.#received = received;
    this.#form = form;
    this.#owner = owner;
    this.#prompts = prompts;
    this.#open = prompts.open(form, received, owner);
    this.digest = digestOf(form, received);
  }

  /** In bytes. */
  get length(): number {
    return this.#received.length;
  }

  /** Undefined once they were freed. */
  get bytes(): Uint8Array | undefined {
    return this.#received.bytes;
  }

  /** Parses and validates it. */
  check(signal: Signal): Promise<Checked> {
    return this.#open.check(signal);
  }

  /** Makes its prompt. Call it after `check` succeeded. From then on the body stays in memory only while there is room for it. */
  async tokenize(signal: Signal): Promise<Tokenized> {
    const made = await this.#open.tokenize(signal);
    this.#open.close();
    this.#received.setSpare();
    this.imagesHeld('images' in made ? made.images : []);
    return made;
  }

  /** Makes its prompt once more, of this version. Returns undefined if the body was freed. */
  async tokenizeAgain(wanted: ModelPromptVersion | undefined, signal: Signal): Promise<Tokenized | undefined> {
    if (!this.#received.setNeeded()) return undefined;
    this.#open = this.#prompts.open(this.#form, this.#received, this.#owner, wanted);
    return this.tokenize(signal);
  }

  /** Of the prompt's images these are still needed. Their files count as the body did. */
  imagesHeld(images: readonly RequestImage[]): void {
    this.#received.countDerived(images.reduce((sum, { bytes }) => sum + bytes.byteLength, 0));
  }

  /** An engine has begun the prompt, so that it is not made again. Its images are still needed. */
  begun(): void {
    this.#received.freeBytes();
  }

  /** The request has ended. Idempotent. */
  free(): void {
    this.#open.close();
    this.#received.free();
  }
}

function digestOf(form: BodyForm, { bytes, length }: Body): string {
  const hash = createHash('sha256').update(`${form} ${length}\0`);
  if (bytes === undefined) return '';
  if (length <= 2 * END_BYTES) hash.update(bytes);
  else hash.update(bytes.subarray(0, END_BYTES)).update(bytes.subarray(-END_BYTES));
  return hash.digest('base64url');
}
