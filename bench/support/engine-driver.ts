/** An engine process driven over its protocol, without a sidecar and HTTP. */
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { PROTOCOL_VERSION, type FromEngine, type ToEngine } from '../../engine/protocol/messages.js';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import type { GenerateJob, ScoreJob, Output } from '../../engine/protocol/jobs.js';
import { LinkedChild } from '../../test/support/linked-child.js';
import { poolThreads } from '../../sidecar/engine-client/child.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';

const ENTRY = fileURLToPath(new URL('../../engine/main.js', import.meta.url));

/**
 * The longest wait: a bench that hangs should report it. The longest job of a bench, a prompt that fills the context, takes more than
 * five minutes on two cores of a slow Xeon.
 */
const TIMEOUT_MS = 900_000;

type Order = ToEngine extends infer M ? (M extends { v: number } ? Omit<M, 'v'> : never) : never;

/** A job of a bench, which gets an id. */
export type Job =
  { readonly kind: 'generate'; readonly job: GenerateJob } | { readonly kind: 'score'; readonly job: ScoreJob };

/** One output of a job, and when it arrived, ms from the jobs’ start. `index`: of the job in its list. */
export interface TimedOutput {
  readonly index: number;
  readonly output: Output;
  readonly atMs: number;
}

/** The results of some sequences at once. */
export interface Round {
  readonly tokens: number;
  readonly seconds: number;
}

/** What each sequence of a round does. */
export interface Load {
  readonly promptTokens: number;
  readonly tokens: number;
  /** 1 by default. */
  readonly temperature?: number;
  /** 1 by default. */
  readonly topP?: number;
  /** 0 by default. */
  readonly frequencyPenalty?: number;
}

/** A loaded engine, by default on one compute thread. Its owner closes it. */
export class EngineDriver {
  readonly #child: LinkedChild;
  #nextId = 1;
  /** Prompts of `rounds` and `closedLoop` so far. */
  #prompts = 0;

  private constructor(child: LinkedChild) {
    this.#child = child;
  }

  /** Starts an engine process; rejects if it cannot serve the file. */
  static async start(file: string, seats: number, setup: Partial<EngineSetup> = {}): Promise<EngineDriver> {
    const pool = { UV_THREADPOOL_SIZE: String(poolThreads(availableParallelism())) };
    const child = new LinkedChild(ENTRY, 'inherit', pool);
    const driver = new EngineDriver(child);
    driver.#send({
      kind: 'start',
      setup: {
        file,
        kind: 'chat',
        seats,
        contextPerSeat: 256,
        threads: 1,
        gpu: false,
        flashAttention: 'auto',
        prefillTokensPerStep: 512,
        prefillShare: 100,
        prefixReuse: 'auto',
        heartbeatMs: 1000,
        ...setup,
      },
    });
    await driver.#hear((message) => message.kind === 'ready');
    return driver;
  }

  /**
   * Runs jobs in parallel until all are done, or until `heard`, which gets every output of theirs, returns `enough`:
   * then the others are cancelled. A list that `heard` returns is started as well. A job that fails rejects.
   */
  async run(jobs: readonly Job[], heard: (heard: TimedOutput) => readonly Job[] | 'enough' | undefined): Promise<void> {
    const open = new Map<number, number>();
    const from = performance.now();
    let started = 0;
    const start = (more: readonly Job[]): void => {
      for (const job of more) {
        const id = this.#nextId++;
        open.set(id, started++);
        this.#send({ ...job, id });
      }
    };
    start(jobs);
    await this.#hear((message) => {
      if (message.kind !== 'step') return false;
      const atMs = performance.now() - from;
      for (const output of message.outputs) {
        const index = open.get(output.id);
        if (index === undefined) continue;
        if (output.kind === 'failed') throw new Error(output.reason);
        if (output.kind === 'done') open.delete(output.id);
        const next = heard({ index, output, atMs });
        if (next === 'enough') {
          for (const id of open.keys()) this.#send({ kind: 'cancel', id });
          return true;
        }
        if (next) start(next);
      }
      return open.size === 0;
    });
  }

  /** Runs `sequences` replies in parallel, each of exactly `tokens` tokens if the model never ends one before. */
  round(sequences: number, load: Load): Promise<Round> {
    return this.rounds(sequences, sequences, load);
  }

  /**
   * As many rounds one after another as make `replies` replies, as one: at few sequences a single round is too short.
   */
  async rounds(replies: number, sequences: number, load: Load): Promise<Round> {
    let tokens = 0;
    const from = performance.now();
    for (let made = 0; made < replies; made += sequences) {
      const jobs = Array.from(
        { length: sequences },
        () => ({ kind: 'generate', job: randomJob(this.#prompts++, load) }) as const,
      );
      await this.run(jobs, ({ output }) => {
        if (output.kind === 'finished') tokens += output.completionTokens;
        return undefined;
      });
    }
    return { tokens, seconds: (performance.now() - from) / 1000 };
  }

  /**
   * So many replies at once, the next when one ended, until there were `replies` in all; `load` returns the parameters
   * of each.
   */
  async closedLoop(callers: number, replies: number, load: (i: number) => Load): Promise<Round> {
    let tokens = 0;
    let sent = 0;
    const next = (): Job => ({ kind: 'generate', job: randomJob(this.#prompts++, load(sent++)) });
    const from = performance.now();
    await this.run(Array.from({ length: callers }, next), ({ output }) => {
      if (output.kind === 'finished') tokens += output.completionTokens;
      return output.kind === 'done' && sent < replies ? [next()] : undefined;
    });
    return { tokens, seconds: (performance.now() - from) / 1000 };
  }

  get pid(): number {
    return Number(this.#child.process.pid);
  }

  async close(): Promise<void> {
    this.#send({ kind: 'shutdown' });
    await once(this.#child.process, 'exit', { signal: AbortSignal.timeout(TIMEOUT_MS) });
  }

  #send(order: Order): void {
    this.#child.send({ v: PROTOCOL_VERSION, ...order });
  }

  /** Resolves with the first message that `isLast`; earlier ones are passed to it too. */
  #hear(isLast: (message: FromEngine) => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => end(new Error('the engine does not answer')), TIMEOUT_MS);
      const hear = (raw: unknown): void => {
        const message = raw as FromEngine;
        try {
          if (message.kind === 'unable') throw new Error(message.reason);
          if (isLast(message)) end();
        } catch (error) {
          end(error as Error);
        }
      };
      const left = (): void => end(new Error('the engine ended'));
      const end = (error?: Error): void => {
        clearTimeout(timer);
        this.#child.off('message', hear);
        this.#child.process.off('exit', left);
        if (error) reject(error);
        else resolve();
      };
      this.#child.on('message', hear);
      this.#child.process.on('exit', left);
    });
  }
}

/** A reply to some ordinary tokens of any vocabulary. No two prompts with other `i`, below half a million, begin alike. */
export function randomJob(i: number, { promptTokens, tokens, ...sampling }: Load): GenerateJob {
  const { temperature = 1, topP = 1, frequencyPenalty = 0 } = sampling;
  return {
    prompt: tokenPrompt(
      Uint32Array.from(
        { length: promptTokens },
        (_, at) => 300 + ((at === 1 ? Math.floor(i / 700) : i * 31 + at * 7 + (at >> 4)) % 700),
      ),
    ),
    n: 1,
    seats: 1,
    maxTokens: tokens,
    temperature,
    topP,
    frequencyPenalty,
    presencePenalty: 0,
    seed: i,
    stops: [],
    scope: ALL_ACCOUNTS,
  };
}
