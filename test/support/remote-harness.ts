/** A remote loop with a stub of a server, without processes: the test adds jobs, and every output is kept. */
import { adapterFor } from '../../engine/remote/start.js';
import { RemoteLoop } from '../../engine/remote/remote-loop.js';
import { ServerClient } from '../../engine/remote/server-client.js';
import { processClock } from '../../engine/protocol/clock.js';
import type { GenerateJob, ScoreJob, Output } from '../../engine/protocol/jobs.js';
import { ALL_ACCOUNTS } from '../../engine/protocol/cache-key.js';
import { tokenPrompt } from '../../engine/protocol/prompt.js';
import { END, ServerStub, type StubKind } from './server-stub.js';

const JOB: GenerateJob = {
  prompt: tokenPrompt(Uint32Array.of(5, 6, 7)),
  n: 1,
  seats: 1,
  maxTokens: 16,
  temperature: 1,
  topP: 0.9,
  frequencyPenalty: 0.5,
  presencePenalty: 0.25,
  seed: 7,
  stops: [],
  scope: ALL_ACCOUNTS,
};

const SCORE: ScoreJob = {
  isolate: false,
  seats: 1,
  scope: ALL_ACCOUNTS,
  input: Uint32Array.of(5, 6),
  questions: [{ tail: Uint32Array.of(7), labels: Uint32Array.of(20, 21), temperature: 1 }],
  temperature: 1,
};

export interface RemoteHarnessOptions {
  readonly seats?: number;
  readonly tokens?: number;
  readonly cancelWaitMs?: number;
  readonly silentMs?: number;
  readonly tokenMs?: number;
}

export class RemoteHarness {
  readonly stub: ServerStub;
  readonly loop: RemoteLoop;
  readonly outputs: Output[] = [];
  readonly capacities: { readonly seats: number; readonly unconfirmed: number }[] = [];
  suspected = 0;
  readonly #waiting = new Set<() => void>();
  #id = 0;

  private constructor(stub: ServerStub, options: RemoteHarnessOptions) {
    const { seats = 4, tokens = 1000, cancelWaitMs = 5000, silentMs = 60_000, tokenMs = 60_000 } = options;
    this.stub = stub;
    const setup = { kind: stub.kind, url: stub.url, cancelWaitMs, silentMs, tokenMs };
    const client = new ServerClient(setup);
    const model = {
      isEnd: (token: number) => token === END,
      bytes: (token: number) => Uint8Array.of(token),
      control: () => undefined,
    };
    this.loop = new RemoteLoop(
      { client, adapter: adapterFor({ client, setup }), tokens: model, longestTokenBytes: 1, clock: processClock },
      {
        seats,
        tokens,
        cancelWaitMs,
        silentMs,
        tokenMs,
        emit: (_, outputs) => {
          this.outputs.push(...outputs);
          this.#wake();
        },
        capacity: (now, unconfirmed) => {
          this.capacities.push({ seats: now, unconfirmed });
          this.#wake();
        },
        suspect: () => {
          this.suspected += 1;
          return Promise.resolve();
        },
      },
    );
  }

  static async start(
    t: { teardown(fn: () => Promise<void>): void },
    kind: StubKind,
    options: RemoteHarnessOptions = {},
  ): Promise<RemoteHarness> {
    const harness = new RemoteHarness(await ServerStub.start(t, kind), options);
    t.teardown(async () => {
      harness.loop.close();
      await Promise.resolve();
    });
    return harness;
  }

  generate(job: Partial<GenerateJob> = {}): number {
    this.loop.generate((this.#id += 1), { ...JOB, ...job });
    return this.#id;
  }

  score(job: Partial<ScoreJob> = {}): number {
    this.loop.score((this.#id += 1), { ...SCORE, ...job });
    return this.#id;
  }

  of(id: number): Output[] {
    return this.outputs.filter((output) => output.id === id);
  }

  /** Settles with a job’s outputs, once it has ended. */
  async ended(id: number): Promise<string> {
    const ends = ['done', 'failed', 'returned', 'cancelled'];
    await this.until(() => this.of(id).some(({ kind }) => ends.includes(kind)));
    return this.of(id).map(wordOf).join(' ');
  }

  async until(seen: () => boolean): Promise<void> {
    while (!seen()) await new Promise<void>((wake) => this.#waiting.add(wake));
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }
}

function wordOf(output: Output): string {
  switch (output.kind) {
    case 'started':
      return `started:${output.cachedTokens}`;
    case 'cached':
      return `cached:${output.tokens}`;
    case 'piece':
      return output.text;
    case 'finished':
      return `${output.reason}:${output.completionTokens}`;
    case 'failed':
      return `failed(${output.reason})`;
    case 'answer':
      return `mass:${output.labelMass.toFixed(3)}`;
    default:
      return output.kind;
  }
}
