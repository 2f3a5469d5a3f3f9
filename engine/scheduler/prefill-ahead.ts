/**
 * What an idle engine does for conversations whose state cannot be truncated: it evaluates the last reply as the next prompt will
 * contain it, and keeps that state. The state that the reply itself left is of no use to a request that runs alone: it was
 * computed one token at a time, so its last digits differ from those of a prefill, and it ends after tokens that the next prompt
 * may not have.
 *
 * The work is done in the free sequence that holds the reply, which stays free, and counts as no use of it. It ends with the chunk in
 * which a request arrives.
 */
import type { Clock } from '../protocol/clock.js';
import { tokenPrompt } from '../protocol/prompt.js';
import { decodeOnce, type Decoder } from './decoder.js';
import { EngineFault } from './faults.js';
import type { ModelTokens, StepLimits } from './job.js';
import { chatPoints, PromptPlan, PromptProgress, TURN_GAP } from './prompt-plan.js';
import type { HeldReply, Sequences } from './sequences.js';

/**
 * Time without a job before it begins, ms. A person reads a reply for longer, and a program goes on sooner, which then
 * waits for nothing.
 */
const IDLE_MS = 200;

/** Evaluates next prompts, between the runs of a step loop. */
export class PrefillAhead {
  readonly #decoder: Decoder;
  readonly #sequences: Sequences;
  readonly #model: ModelTokens;
  readonly #limits: StepLimits;
  readonly #clock: Clock;
  #cancel: () => void = () => undefined;

  constructor(decoder: Decoder, sequences: Sequences, model: ModelTokens, limits: StepLimits, clock: Clock) {
    this.#decoder = decoder;
    this.#sequences = sequences;
    this.#model = model;
    this.#limits = limits;
    this.#clock = clock;
  }

  /** Nothing runs any more: calls `begin` once that has lasted, if there is a reply to evaluate. */
  idle(begin: () => unknown): void {
    this.stop();
    // With `any` a prompt goes on from the reply's own state.
    if (this.#limits.prefillAhead !== true || this.#limits.prefixReuse !== 'auto' || !this.#limits.checkpointBytes)
      return;
    if (this.#sequences.lastReply) this.#cancel = this.#clock.after(IDLE_MS, begin);
  }

  /** Something runs again, or nothing ever will. Idempotent. */
  stop(): void {
    this.#cancel();
  }

  /** Evaluates what there is, the conversation of the last reply first. Never rejects. `interrupted`: it ends after this chunk. */
  async run(interrupted: () => boolean): Promise<void> {
    while (!interrupted()) {
      const held = this.#sequences.takeReply();
      if (!held) return;
      let plan: PromptPlan | undefined;
      try {
        plan = this.#planOf(held);
        if (plan) await this.#prefill(held.sequence, plan, interrupted);
      } catch {
        // The next prompt is evaluated from its start, and fails if the decoder still does.
        this.#sequences.invalidated(held.sequence);
      }
      plan?.tokens.fill(0);
    }
  }

  /** Undefined if nothing is likely to be gained. */
  #planOf(held: HeldReply): PromptPlan | undefined {
    const tokens = nextPrompt(held, this.#model);
    if (!tokens) return undefined;
    const points = chatPoints(tokens.length, this.#model, false);
    const plan = new PromptPlan(tokenPrompt(tokens), this.#limits.prefillTokensPerStep, held.key, points);
    const gains = [...plan.saved].some((length) => length > held.reply.from);
    if (gains && tokens.length <= this.#limits.contextPerSeat) return plan;
    tokens.fill(0);
    return undefined;
  }

  async #prefill(sequence: number, plan: PromptPlan, interrupted: () => boolean): Promise<void> {
    const progress = new PromptProgress(plan, await this.#sequences.reopen(sequence, plan, 'same-split'));
    while (progress.left > 0 && !interrupted()) {
      const tokens = progress.take(progress.chunk);
      const [result] = await decodeOnce(this.#decoder, [{ kind: 'prefill', sequence, tokens }]);
      if (result?.kind !== 'filled') throw new EngineFault('the decode failed');
      this.#sequences.evaluated(sequence, tokens, true);
      if (progress.saves) await this.#sequences.save(sequence);
    }
  }
}

/**
 * llama.cpp's regular expressions recurse over runs of similar characters, up to 2 KiB of stack for each, and may match a run of
 * white space with the one before it; this thread has 8 MB. A reply with a longer run is not tokenized here.
 */
const TOO_LONG_A_RUN = /\s{1000}|\S{1000}/u;

/**
 * The prompt, the reply as the next prompt's template will put it there, and how a turn ends and the next begins, as the prompt
 * itself shows. The reply's own tokens are not used: sampled tokens often differ from those that its text is made of when it
 * is tokenized. Where a template changes the text, the next prompt differs from here on, and only work is lost. Undefined:
 * nothing can be said. The caller owns the result.
 */
function nextPrompt(held: HeldReply, model: ModelTokens): Uint32Array | undefined {
  const { from, tokens, last } = held.reply;
  const prompt = held.tokens.subarray(0, from);
  const evaluated = held.tokens.subarray(from, from + tokens);
  const change = turnChange(prompt, model);
  if (!model.tokenize || !change || evaluated.length < tokens - 1) return undefined;
  const header = prompt.findLastIndex((token) => model.control(token) !== undefined) + 1;
  const spoken = new Uint32Array(from - header + tokens);
  spoken.set(prompt.subarray(header));
  spoken.set(evaluated, from - header);
  if (evaluated.length < tokens) spoken[spoken.length - 1] = last;
  const text = textOf(spoken, model);
  spoken.fill(0);
  if (text === undefined || TOO_LONG_A_RUN.test(text)) return undefined;
  const said = model.tokenize(text);
  const next = new Uint32Array(header + said.length + change.length);
  next.set(prompt.subarray(0, header));
  next.set(said, header);
  next.set(change, header + said.length);
  said.fill(0);
  return next;
}

/** Undefined if one is a control token, such as that of a channel's header, which is no part of the text that callers get. */
function textOf(tokens: Uint32Array, model: ModelTokens): string | undefined {
  if (tokens.some((token) => model.control(token) !== undefined)) return undefined;
  return Buffer.concat(Array.from(tokens, (token) => model.bytes(token))).toString();
}

/** The tokens from the end of a turn to the one that begins the next: `<|im_end|>`, a line break, `<|im_start|>`. */
function turnChange(prompt: Uint32Array, model: ModelTokens): Uint32Array | undefined {
  const end = prompt.findLastIndex((token) => model.isEnd(token));
  if (end < 0) return undefined;
  const after = prompt.subarray(end + 1, end + 1 + TURN_GAP);
  const begins = after.findIndex((token) => model.control(token) !== undefined);
  return begins < 0 ? undefined : prompt.subarray(end, end + 2 + begins);
}
