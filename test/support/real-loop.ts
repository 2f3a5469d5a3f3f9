/** The step loop with a real model in this process, for tests of what the engine computes. */
import { EventEmitter, once } from 'node:events';
import type { LlamaContext, LlamaModel } from 'node-llama-cpp';
import { BatchDecoder } from '../../engine/llama/batch-decoder.js';
import type { Decoder, StepPart, StepResults } from '../../engine/scheduler/decoder.js';
import type { EngineSetup, Speculation } from '../../engine/protocol/setup.js';
import type { GenerateJob, ReplyLimit, ScoreJob, Output } from '../../engine/protocol/jobs.js';
import type { Clock } from '../../engine/protocol/clock.js';
import type { CacheCounts, HeldPrefix } from '../../engine/protocol/messages.js';
import { truncatableAnywhere } from '../../engine/llama/load-plan.js';
import { loadRuntime } from '../../engine/llama/runtime.js';
import { stepsOf } from '../../engine/scheduler/jobs.js';
import type { Emit } from '../../engine/scheduler/outbox.js';
import { StepLoop } from '../../engine/scheduler/step-loop.js';
import type { StepLimits } from '../../engine/scheduler/job.js';

const THREADS = 1;

const LIMITS = {
  seats: 4,
  contextPerSeat: 1024,
  prefillTokensPerStep: 64,
  prefillShare: 100,
  prefixReuse: 'auto',
  origin: { weights: '', kv: 'f16' },
} as const satisfies StepLimits;

export interface RealLoopOptions extends Partial<Omit<StepLimits, 'seats'>> {
  readonly seats?: number;
  /** A token that counts as a control token, as those around a turn of a chat are. */
  readonly mark?: number | undefined;
  /** A token that counts as the end of a turn. */
  readonly end?: number | undefined;
  readonly clock?: Clock | undefined;
}

export type LoadOptions = Omit<RealLoopOptions, 'mark' | 'end' | 'clock'> &
  Partial<Pick<EngineSetup, 'kv' | 'swaFull' | 'flashAttention' | 'threads'>>;

type Answer = Extract<Output, { kind: 'answer' }>;

/** What a benchmark changes between two jobs. */
interface Switched {
  speculation?: Speculation;
}

/** A running job. */
export interface Started {
  /** Resolves with its first text. */
  readonly speaks: Promise<unknown>;
  readonly ran: Promise<Ran>;
  /** ``ran` then never settles. */
  readonly cancel: () => void;
}

/** The results of one job. */
export interface Ran {
  readonly cached: number;
  /** Token ids by choice. */
  readonly tokens: readonly (readonly number[])[];
  /** By question. */
  readonly answers: readonly Answer[];
  /** Tokens that were evaluated meanwhile, of all jobs. */
  readonly evaluated: number;
  /** Decodes that were made meanwhile. */
  readonly decodes: number;
  /** Calls of the decoder meanwhile; fewer than decodes if steps follow one another in a run. */
  readonly calls: number;
  /** Tokens that were drafted for its replies, and those of them that these have. */
  readonly drafted: number;
  readonly accepted: number;
}

export class RealLoop {
  readonly decoder: Decoder;
  /** What it reported of its sequences and its cache. */
  readonly held: HeldPrefix[] = [];
  /** The decoder under the loop. */
  readonly #below: Pick<LlamaContext, 'dispose'>;
  readonly #loop: StepLoop;
  readonly #limits: StepLimits & Switched;
  /** By job: of those that are not over. */
  readonly #outputs = new Map<number, Output[]>();
  readonly #events = new EventEmitter().setMaxListeners(0);
  #lastId = 0;
  #evaluated = 0;
  #calls = 0;

  /** Returns the limit of the replies that ask for one. */
  nextLimit: () => ReplyLimit | Promise<ReplyLimit> = () => ({ tokens: Infinity, last: true });

  private constructor(
    below: Pick<LlamaContext, 'dispose'>,
    decoder: Decoder,
    limits: StepLimits,
    { mark, end, clock }: Pick<RealLoopOptions, 'mark' | 'end' | 'clock'> = {},
  ) {
    this.#below = below;
    this.#limits = { ...limits };
    this.decoder = decoder;
    const step = decoder.step.bind(decoder);
    decoder.step = (parts, run) => this.#counted(parts, step(parts, run));
    // A token’s text is its id, so that replies can be compared token for token, and none ends a reply.
    const bytes = (token: number): Uint8Array => Buffer.from(`${token} `);
    const control = (token: number): string | undefined => (token === mark ? '<mark>' : undefined);
    const tokenize = (text: string): Uint32Array => Uint32Array.from(text.trim().split(' ').map(Number));
    const tokens = { isEnd: (token: number) => token === end, bytes, control, tokenize };
    const emit: Emit = (_, outputs, held) => {
      for (const output of outputs) {
        if (output.kind === 'needsTokens') setImmediate(() => void this.#limit(output.id));
        this.#outputs.get(output.id)?.push(output);
      }
      this.held.push(...held);
      for (const { id, kind } of outputs) this.#events.emit(`${id}:${kind}`);
      this.#events.emit('emitted');
    };
    this.#loop = new StepLoop(decoder, tokens, this.#limits, emit, clock);
  }

  async #limit(id: number): Promise<void> {
    this.#loop.limit(id, await this.nextLimit());
  }

  async *#counted(parts: readonly StepPart[], decoding: StepResults): StepResults {
    this.#calls += 1;
    this.#evaluated += parts.reduce((sum, { tokens }) => sum + tokens.length, 0);
    let steps = -1;
    for (;;) {
      const { value, done } = await decoding.next();
      steps += stepsOf(value);
      if (done !== true) {
        yield value;
        continue;
      }
      this.#evaluated += steps * parts.length;
      return value;
    }
  }

  /** Four sequences of 1,024 tokens, prompts split at 64, by default. Dispose it. */
  static async make(model: LlamaModel, options: RealLoopOptions = {}): Promise<RealLoop> {
    const { mark, end, clock, ...rest } = options;
    const limits = { ...LIMITS, ...rest };
    const context = await model.createContext({
      sequences: limits.seats + (rest.parked ?? 0),
      contextSize: limits.contextPerSeat,
      batchSize: limits.prefillTokensPerStep + limits.seats,
      threads: THREADS,
    });
    const decoder = await BatchDecoder.create(context, THREADS, truncatableAnywhere(model.fileInsights));
    return new RealLoop(context, decoder, limits, { mark, end, clock });
  }

  /** The same with a file as an engine process loads it, with the decoder that it chooses. Dispose it. */
  static async load(file: string, options: LoadOptions = {}): Promise<RealLoop> {
    const { kv, swaFull, flashAttention = 'auto', threads = THREADS, ...rest } = options;
    const limits = { ...LIMITS, ...rest };
    const setup = {
      ...limits,
      file,
      kind: 'chat',
      threads,
      gpu: false,
      flashAttention,
      heartbeatMs: 1000,
      ...(kv && { kv }),
      ...(swaFull !== undefined && { swaFull }),
    } as const;
    const runtime = await loadRuntime(setup);
    return new RealLoop(runtime, runtime.decoder, limits);
  }

  /** Starts a job and returns promises of its first text and of its end. */
  start(job: GenerateJob | ScoreJob): Started {
    const id = ++this.#lastId;
    const before = { evaluated: this.#evaluated, decodes: this.#loop.steps, calls: this.#calls };
    this.#outputs.set(id, []);
    const speaks = once(this.#events, `${id}:piece`);
    const ran = Promise.race([
      once(this.#events, `${id}:done`).then(() => this.#ran(id, before)),
      once(this.#events, `${id}:failed`).then(() => Promise.reject(new Error('the job failed'))),
    ]);
    if ('prompt' in job) this.#loop.generate(id, job);
    else this.#loop.score(id, job);
    return { speaks, ran, cancel: () => this.#loop.cancel(id) };
  }

  /** Of its prefix cache. */
  get cache(): CacheCounts {
    return this.#loop.report.cache;
  }

  /** Of the jobs that are started from now on. */
  set speculation(speculation: Speculation) {
    this.#limits.speculation = speculation;
  }

  /** Drops what jobs of this scope left. */
  forget(scope: string): Promise<void> {
    return this.#loop.forget(scope);
  }

  /** Resolves once it has evaluated so many tokens more, and reported what its sequences hold then. */
  async evaluates(tokens: number): Promise<void> {
    const all = this.#evaluated + tokens;
    while (this.#evaluated < all) await once(this.#events, 'emitted');
  }

  run(job: GenerateJob | ScoreJob): Promise<Ran> {
    return this.start(job).ran;
  }

  async dispose(): Promise<void> {
    await this.#loop.close();
    await this.#below.dispose();
  }

  #ran(id: number, before: Pick<Ran, 'evaluated' | 'decodes' | 'calls'>): Ran {
    const own = this.#outputs.get(id) ?? [];
    this.#outputs.delete(id);
    const texts: string[] = [];
    const answers: Answer[] = [];
    for (const output of own) {
      if (output.kind === 'piece') texts[output.choice] = (texts[output.choice] ?? '') + output.text;
      if (output.kind === 'answer') answers[output.question] = output;
    }
    const cached = own.find((output) => output.kind === 'started')?.cachedTokens ?? -1;
    const tokens = texts.map((text) => text.trim().split(' ').map(Number));
    const evaluated = this.#evaluated - before.evaluated;
    const decodes = this.#loop.steps - before.decodes;
    const ends = own.filter((output) => output.kind === 'finished');
    const drafted = ends.reduce((sum, { draftedTokens = 0 }) => sum + draftedTokens, 0);
    const accepted = ends.reduce((sum, { acceptedTokens = 0 }) => sum + acceptedTokens, 0);
    const calls = this.#calls - before.calls;
    return { cached, tokens, answers, evaluated, decodes, calls, drafted, accepted };
  }
}
