import { EventEmitter, once } from 'node:events';
import { fileURLToPath } from 'node:url';
import {
  PROTOCOL_VERSION as v,
  type EngineReport,
  type FromEngine,
  type ToEngine,
} from '../../engine/protocol/messages.js';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import type { GenerateJob, Output } from '../../engine/protocol/jobs.js';
import { LinkedChild } from './linked-child.js';
import { embeddedTestModel } from './models.js';
import { tokenPrompt, type Prompt } from '../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';

const ENTRY = fileURLToPath(new URL('../../engine/main.js', import.meta.url));

type Kind = Output['kind'];
type Seen = Output & { readonly step: number };

/** An engine process without a sidecar: the test sends jobs, and every output is kept with the number of its step. */
export class RealEngine {
  readonly outputs: Seen[] = [];
  /** The last heartbeat; undefined until one arrives after the last message was sent. */
  report: EngineReport | undefined;
  readonly #child = new LinkedChild(ENTRY);
  readonly #events = new EventEmitter();
  #ready = false;

  private constructor() {
    this.#child.on('message', (message) => this.#take(message as FromEngine));
  }

  /**
   * Jobs that have a sequence or wait for one, by the last heartbeat; undefined until one arrives after the last
   * message was sent.
   */
  get live(): number | undefined {
    return this.report?.live;
  }

  /** Starts one on the embedded model and waits until it is ready; killed when the test ends. */
  static async start(
    t: { teardown(fn: () => Promise<void>): void },
    setup: Pick<EngineSetup, 'seats' | 'contextPerSeat' | 'prefillTokensPerStep' | 'prefixCache'>,
  ): Promise<RealEngine> {
    const file = await embeddedTestModel();
    const engine = new RealEngine();
    t.teardown(async () => {
      const exit = once(engine.#child.process, 'exit');
      engine.#child.process.kill('SIGKILL');
      await exit;
    });
    const kind = 'chat';
    const rest = {
      threads: 1,
      gpu: false,
      flashAttention: 'auto',
      prefillShare: 100,
      prefixReuse: 'auto',
      heartbeatMs: 50,
    } as const;
    engine.#send({ v, kind: 'start', setup: { ...setup, ...rest, file, kind } });
    await engine.#until(() => engine.#ready);
    return engine;
  }

  /** So many tokens of plain text. */
  prompt(tokens: number): Prompt {
    return tokenPrompt(new Uint32Array(tokens).fill(LETTER));
  }

  /** Greedy, with a reward for repetition, so that no end token is sampled. */
  generate(id: number, asked: Pick<GenerateJob, 'prompt' | 'maxTokens'> & Partial<GenerateJob>): void {
    const sampling = { temperature: 0, topP: 1, frequencyPenalty: -2, presencePenalty: 0, seed: 1 };
    const job = { n: 1, seats: 1, stops: [], scope: ALL_ACCOUNTS, ...sampling, ...asked };
    this.#send({ v, kind: 'generate', id, job });
  }

  cancel(id: number): void {
    this.#send({ v, kind: 'cancel', id });
  }

  /** An account is closed. */
  forget(scope: string): void {
    this.#send({ v, kind: 'forget', scope });
  }

  get pid(): number {
    return this.#child.process.pid ?? -1;
  }

  /** Waits for a report that satisfies this, sent after the last message to it. */
  async reports(seen: (report: EngineReport) => boolean): Promise<void> {
    await this.#until(() => this.report !== undefined && seen(this.report));
  }

  /** Waits for an output of a job. */
  async output(id: number, kind: Kind): Promise<void> {
    await this.#until(() => this.outputs.some((output) => output.id === id && output.kind === kind));
  }

  /** The step with a job’s first output of a kind. Throws if there is none. */
  stepOf(id: number, kind: Kind): number {
    const output = this.outputs.find((other) => other.id === id && other.kind === kind);
    if (!output) throw new Error(`no ${kind} of job ${id}`);
    return output.step;
  }

  /** Whether no output of one job came after the first of another. */
  silentAfter(id: number, other: number): boolean {
    const from = this.outputs.findIndex((output) => output.id === other);
    return from >= 0 && !this.outputs.slice(from).some((output) => output.id === id);
  }

  #send(message: ToEngine): void {
    this.report = undefined;
    this.#child.send(message);
  }

  #take(message: FromEngine): void {
    if (message.kind === 'ready') this.#ready = true;
    else if (message.kind === 'heartbeat') this.report = message;
    else if (message.kind === 'step') {
      this.outputs.push(...message.outputs.map((output) => ({ ...output, step: message.step })));
    } else if (message.kind === 'unable') throw new Error(`the engine cannot serve: ${message.reason}`);
    this.#events.emit('message');
  }

  async #until(seen: () => boolean): Promise<void> {
    while (!seen()) await once(this.#events, 'message');
  }
}

/** A byte of the embedded vocabulary, which has one token for each. */
const LETTER = 97;
