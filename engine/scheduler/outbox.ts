import type { Clock } from '../protocol/clock.js';
import type { HeldPrefix } from '../protocol/messages.js';
import type { Output } from '../protocol/jobs.js';

/**
 * Steps shorter than this share a message, ms. Each message takes processor time of the engine's main thread and of the sidecar, which
 * delays the next steps where all cores compute (bench/results/replicas-limit-native.md). 10 ms between two tokens are less than a screen
 * shows. Ends are sent at once, and so is a first token that has a text.
 */
export const SEND_MS = 10;

/**
 * Called with the outputs since the last call, and with the free sequences and cache places whose prefixes changed; `step`
 * counts decodes.
 */
export type Emit = (step: number, outputs: readonly Output[], held: readonly HeldPrefix[]) => void;

/** The outputs since the last message. */
export class Outbox {
  readonly #emit: Emit;
  readonly #sendMs: number;
  readonly #clock: Clock;
  readonly #reports: (id: number) => boolean;
  /** The list to which outputs are added. */
  readonly outputs: Output[] = [];
  #sentAt = -Infinity;

  /** `reports`: whether the outputs of a job are to be sent. */
  constructor(emit: Emit, sendMs: number, clock: Clock, reports: (id: number) => boolean) {
    this.#reports = reports;
    this.#emit = emit;
    this.#sendMs = sendMs;
    this.#clock = clock;
  }

  /** Whether the outputs must be sent at this time of the clock. */
  due(now: number): boolean {
    return now - this.#sentAt >= this.#sendMs || this.outputs.some((one) => one.kind !== 'piece' || one.tokens <= 1);
  }

  /** Drops the outputs of cancelled jobs, which send nothing more. */
  dropCancelled(): void {
    const kept = this.outputs.filter(({ id }) => this.#reports(id));
    if (kept.length < this.outputs.length) this.outputs.splice(0, Infinity, ...kept);
  }

  /** Sends the outputs, if there are any. */
  send(step: number, held: readonly HeldPrefix[]): void {
    this.dropCancelled();
    if (this.outputs.length === 0 && held.length === 0) return;
    this.#sentAt = this.#clock.now();
    this.#emit(step, joined(this.outputs.splice(0)), held);
  }
}

/**
 * Combines outputs: consecutive pieces of one reply in one channel become one piece. The tokens of several steps in one
 * message are then one event on the wire.
 */
export function joined(outputs: readonly Output[]): Output[] {
  const all: Output[] = [];
  /** By job and choice, the index of its last output, if that is a piece. */
  const lasts = new Map<number, Map<number, number>>();
  for (const output of outputs) {
    const choices = lasts.get(output.id);
    if (output.kind !== 'piece') {
      choices?.clear();
      all.push(output);
      continue;
    }
    const at = choices?.get(output.choice);
    const last = at === undefined ? undefined : all[at];
    if (at !== undefined && last?.kind === 'piece' && last.channel === output.channel) {
      const { id, kind, choice, channel, text, tokens } = output;
      all[at] = { id, kind, choice, channel, text: last.text + text, tokens };
      continue;
    }
    if (choices) choices.set(output.choice, all.length);
    else lasts.set(output.id, new Map([[output.choice, all.length]]));
    all.push(output);
  }
  return all;
}
