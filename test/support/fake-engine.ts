import type {
  Engine,
  EngineFacts,
  EngineJob,
  JobFault,
  FinishReason,
  GenerateJob,
  GenerationReceiver,
  JobHandle,
  ReplyLimit,
  ScoreJob,
  ScoreReceiver,
} from '../../sidecar/engine-client/engine.js';
import { NO_PREFIXES, type PrefixIndex } from '../../sidecar/engine-client/prefixes.js';

const FAKE_FACTS: EngineFacts = {
  seats: 4,
  contextPerSeat: 1024,
  vocabulary: 256,
  weightVersion: '0'.repeat(64),
  threads: 1,
  gpu: false,
};

/** One job at the fake. The test acts as the engine: results after the job ended or was cancelled are dropped. */
class FakeJob<Job, Receiver extends GenerationReceiver | ScoreReceiver> {
  readonly job: Job;
  readonly #receiver: Receiver;
  readonly #onEnd: () => void;
  /** Settles when its owner cancelled the job. */
  readonly cancelled: Promise<void>;
  /** The limits that it was given while it ran. */
  readonly limits: ReplyLimit[] = [];
  /** How often a seat was recalled. */
  reductions = 0;
  #markCancelled!: () => void;
  /** What a cancel returns. */
  stopped: Promise<void> | undefined;
  #started = false;
  #over = false;

  constructor(job: Job, receiver: Receiver, onEnd: () => void) {
    this.job = job;
    this.#receiver = receiver;
    this.#onEnd = onEnd;
    this.cancelled = new Promise((resolve) => (this.#markCancelled = resolve));
  }

  /** Whether it was started. */
  get begun(): boolean {
    return this.#started;
  }

  /** Neither ended nor cancelled. */
  get live(): boolean {
    return !this.#over;
  }

  started(cachedTokens = 0, weightVersion = FAKE_FACTS.weightVersion): this {
    return this.say((receiver) => {
      this.#started = true;
      receiver.started(cachedTokens, weightVersion);
    });
  }

  narrow(): void {
    this.reductions += 1;
  }

  /** One of its seats is free again. */
  seatFreed(): this {
    return this.say((receiver) => receiver.seatFreed());
  }

  done(): void {
    this.#last((receiver) => receiver.done());
  }

  failed(kind: JobFault['kind']): void {
    this.#last((receiver) => receiver.failed({ kind, started: this.#started }));
  }

  cancel(): Promise<void> | undefined {
    this.#last(() => this.#markCancelled());
    return this.stopped;
  }

  protected say(call: (receiver: Receiver) => void): this {
    if (!this.#over) call(this.#receiver);
    return this;
  }

  #last(call: (receiver: Receiver) => void): void {
    if (this.#over) return;
    this.#over = true;
    this.#onEnd();
    call(this.#receiver);
  }
}

export class FakeGeneration extends FakeJob<GenerateJob, GenerationReceiver> {
  #tokens = 0;

  /** Tokens of the current choice. */
  get said(): number {
    return this.#tokens;
  }

  /** One piece of content per text, one token each. */
  pieces(...texts: string[]): this {
    for (const text of texts) {
      this.#tokens += 1;
      this.say((receiver) => receiver.piece({ choice: 0, channel: 'content', text, tokens: this.#tokens }));
    }
    return this;
  }

  /** A reply asks for more tokens than its limit. */
  needsTokens(tokens: number): this {
    return this.say((receiver) => receiver.needsTokens?.(tokens));
  }

  /** One piece of content, with so many tokens. */
  piece(tokens: number): this {
    this.#tokens += tokens;
    return this.say((receiver) => receiver.piece({ choice: 0, channel: 'content', text: 'x', tokens: this.#tokens }));
  }

  needsImage(image: number): this {
    return this.say((receiver) => receiver.needsImage?.(image));
  }

  finished(choice = 0, reason: FinishReason = 'stop'): this {
    const completionTokens = this.#tokens;
    this.#tokens = 0;
    return this.say((receiver) => receiver.finished({ choice, reason, completionTokens, reasoningTokens: 0 }));
  }
}

export class FakeScoring extends FakeJob<ScoreJob, ScoreReceiver> {
  answer(question: number, probabilities: readonly number[], labelMass = 0.9): this {
    return this.say((receiver) =>
      receiver.answer({ question, probabilities: Float64Array.from(probabilities), labelMass }),
    );
  }
}

/**
 * Plays a job as soon as it arrives, one microtask later; undefined: the test takes it from `next…` and plays it step
 * by step.
 */
export interface FakeScript {
  generate?: (job: FakeGeneration) => void;
  score?: (job: FakeScoring) => void;
}

/** An Engine in this process, for tests of handlers: ready at once, with {@link FAKE_FACTS} by default. */
export class FakeEngine implements Engine {
  state: Engine['state'] = 'ready';
  facts: EngineFacts | undefined = FAKE_FACTS;
  readyInMs = 0;
  problem: string | undefined;
  onDemand = false;
  /** How often it was woken. */
  woken = 0;
  script: FakeScript;
  prefixes: PrefixIndex = NO_PREFIXES;
  readonly replicas = [this];
  /** All jobs that arrived, oldest first. */
  readonly generations: FakeGeneration[] = [];
  readonly scorings: FakeScoring[] = [];
  /** The replicas that the chats were given. */
  readonly placed: number[] = [];
  readonly #live = new Set<{ failed(kind: JobFault['kind']): void }>();
  #onJob: (() => void)[] = [];

  constructor(script: FakeScript = {}) {
    this.script = script;
  }

  get contexts(): readonly number[] {
    return [this.facts?.contextPerSeat ?? FAKE_FACTS.contextPerSeat];
  }

  /** Embeddings that jobs were given. */
  readonly supplied: [image: number, values: Float32Array][] = [];

  /** Jobs that have a sequence now. */
  get live(): number {
    return this.#live.size;
  }

  wake(): void {
    this.woken += 1;
  }

  run(asked: EngineJob, replica = 0): JobHandle {
    if (asked.kind === 'score') {
      const fake: FakeScoring = new FakeScoring(asked.job, asked.receiver, () => void this.#live.delete(fake));
      this.scorings.push(fake);
      return this.#take(fake, () => this.script.score?.(fake));
    }
    if (asked.kind === 'embed') throw new Error('a fake engine makes no vectors');
    this.placed.push(replica);
    const fake: FakeGeneration = new FakeGeneration(asked.job, asked.receiver, () => void this.#live.delete(fake));
    this.generations.push(fake);
    return this.#take(fake, () => this.script.generate?.(fake));
  }

  heldPrefixes(): PrefixIndex {
    return this.prefixes;
  }

  /** Settles with the `index`th generation once it arrived. */
  async generation(index: number): Promise<FakeGeneration> {
    return this.#nth(this.generations, index);
  }

  /** Settles with the `index`th scoring once it arrived. */
  async scoring(index: number): Promise<FakeScoring> {
    return this.#nth(this.scorings, index);
  }

  /** Ends: cold, and every live job fails as lost. */
  lose(): void {
    this.state = 'cold';
    for (const job of [...this.#live]) job.failed('lost');
  }

  /** Accepts jobs again. */
  revive(): void {
    this.state = 'ready';
  }

  #take(fake: FakeGeneration | FakeScoring, play: () => void): JobHandle {
    this.#live.add(fake);
    const ready = this.state === 'ready';
    queueMicrotask(() => {
      if (!ready) fake.failed('lost');
      else if (fake.live) play();
    });
    for (const wake of this.#onJob.splice(0)) wake();
    return {
      cancel: () => fake.cancel(),
      reduceSeats: () => fake.narrow(),
      supply: (image, values) => void this.supplied.push([image, values]),
      limit: (limit) => void fake.limits.push(limit),
    };
  }

  async #nth<Job>(jobs: readonly Job[], index: number): Promise<Job> {
    for (;;) {
      const job = jobs[index];
      if (job !== undefined) return job;
      await new Promise<void>((resolve) => this.#onJob.push(resolve));
    }
  }
}
