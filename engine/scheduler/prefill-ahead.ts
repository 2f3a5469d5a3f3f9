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
import type { Decoder } from './decoder.js';
import { EngineFault } from './faults.js';
import type { ModelTokens } from './job.js';
import { nextPrompt, type HeldReply } from './batch-planner.js';
import { chatPoints, PromptPlan, PromptProgress } from './prompt-plan.js';
import type { Sequences } from './sequences.js';
import type { StepLimits } from './step-limits.js';

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

  /** Undefined: nothing is likely to be gained. */
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
      const [result] = await this.#decoder.step([{ kind: 'prefill', sequence, tokens }]);
      if (result?.kind !== 'filled') throw new EngineFault('the decode failed');
      this.#sequences.evaluated(sequence, tokens, true);
      if (progress.saves) await this.#sequences.save(sequence);
    }
  }
}
