/** The step loop over a fake decoder, for unit tests of the engine. */
import { EventEmitter, once } from 'node:events';
import type { GenerateJob, ScoreJob, Output } from '../../engine/protocol/jobs.js';
import type { HeldPrefix } from '../../engine/protocol/messages.js';
import type { Clock } from '../../engine/protocol/clock.js';
import { StepLoop } from '../../engine/scheduler/step-loop.js';
import type { ModelTokens, StepLimits } from '../../engine/scheduler/job.js';
import { FakeDecoder, type FakeDecoderOptions } from './fake-decoder.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';

export const END = 0;
export const LETTER_A = 97;

/** Tokens are ASCII codes; 0 ends a turn. */
export const model: ModelTokens = {
  isEnd: (token) => token === END,
  bytes: (token) => (token === END ? new Uint8Array() : Uint8Array.of(token)),
  control: () => undefined,
};

/** Time that passes only where a test advances it, and to the next timer once the event loop has turned. */
export class StepTime implements Clock {
  ms = 0;

  now(): number {
    return this.ms;
  }

  after(ms: number, fn: () => void): () => void {
    const at = this.ms + ms;
    const turn = setImmediate(() => {
      this.ms = Math.max(this.ms, at);
      fn();
    });
    return () => clearImmediate(turn);
  }
}

/** Writes the alphabet, one letter further with every token of the sequence after its first. */
export const alphabet = (held: readonly number[]): number => LETTER_A + ((held.length - 1) % 26);

export interface BenchOptions extends FakeDecoderOptions, Partial<StepLimits> {
  readonly clock?: Clock;
  /** Other tokens than {@link model}'s. */
  readonly tokens?: ModelTokens;
}

export class Bench {
  readonly decoder: FakeDecoder;
  readonly loop: StepLoop;
  readonly outputs: Output[] = [];
  readonly held: HeldPrefix[] = [];
  onOutputs: (outputs: readonly Output[]) => void = () => undefined;
  readonly #events = new EventEmitter();

  /** Sequences have 64 tokens and prompts are split at 8 by default; no time passes. */
  constructor(
    seats: number,
    next: ConstructorParameters<typeof FakeDecoder>[0] = alphabet,
    { clock = new StepTime(), tokens = model, ...options }: BenchOptions = {},
  ) {
    this.decoder = new FakeDecoder(next, { isEnd: (token) => tokens.isEnd(token), ...options });
    const limits = {
      seats,
      contextPerSeat: 64,
      prefillTokensPerStep: 8,
      prefillShare: 100,
      prefixReuse: 'auto',
      origin: { weights: '', kv: 'f16' },
      sendMs: 0,
    } as const;
    this.loop = new StepLoop(
      this.decoder,
      tokens,
      { ...limits, ...options },
      (_, outputs, held) => {
        this.outputs.push(...outputs);
        this.held.push(...held);
        this.onOutputs(outputs);
        for (const output of outputs) this.#events.emit(`${output.id}:${output.kind}`, output);
      },
      clock,
    );
  }

  of(id: number): Output[] {
    return this.outputs.filter((output) => output.id === id);
  }

  text(id: number, choice = 0): string {
    return this.of(id)
      .map((output) => (output.kind === 'piece' && output.choice === choice ? output.text : ''))
      .join('');
  }

  /** Prompt tokens that were not evaluated. */
  cached(id: number): number | undefined {
    return this.of(id).find((output) => output.kind === 'started')?.cachedTokens;
  }

  async ends(id: number, kind: 'started' | 'piece' | 'done' | 'failed' | 'seatFreed' = 'done'): Promise<void> {
    if (!this.of(id).some((output) => output.kind === kind)) await once(this.#events, `${id}:${kind}`);
  }

  /** Runs a job to its end and returns its steps, as [kind, tokens] of each part. */
  async run(id: number, start: () => void): Promise<[kind: string, tokens: number][][]> {
    const from = this.decoder.steps.length;
    start();
    await this.ends(id);
    return this.decoder.steps.slice(from).map((parts) => parts.map(({ kind, tokens }) => [kind, tokens.length]));
  }
}

/** `prompt`: its tokens, or how many of them. */
export function job(prompt: number | Uint32Array, more: Partial<GenerateJob> = {}): GenerateJob {
  return {
    prompt: tokenPrompt(typeof prompt === 'number' ? new Uint32Array(prompt).fill(1) : prompt),
    n: 1,
    seats: 1,
    maxTokens: 4,
    temperature: 0,
    topP: 1,
    frequencyPenalty: 0,
    presencePenalty: 0,
    seed: 7,
    stops: [],
    scope: ALL_ACCOUNTS,
    ...more,
  };
}

/** `input`: its tokens, or how many of them. */
export function questions(
  input: number | Uint32Array,
  tails: readonly number[],
  more: Partial<ScoreJob> = {},
): ScoreJob {
  return {
    input: typeof input === 'number' ? new Uint32Array(input).fill(1) : input,
    questions: tails.map((length) => ({
      tail: new Uint32Array(length).fill(2),
      labels: Uint32Array.of(5, 6),
      temperature: 1,
    })),
    temperature: 1,
    scope: ALL_ACCOUNTS,
    isolate: true,
    seats: 1,
    ...more,
  };
}
