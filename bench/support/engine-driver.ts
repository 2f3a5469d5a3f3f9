/** An engine process driven over its protocol, with no sidecar and no HTTP between. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { PROTOCOL_VERSION, type FromEngine, type GenerateJob, type ToEngine } from '../../engine/protocol.js';

const ENTRY = fileURLToPath(new URL('../../engine/main.js', import.meta.url));

/** Nothing longer is waited for: a bench that hangs should say so. */
const TIMEOUT_MS = 120_000;

type Order = ToEngine extends infer M ? (M extends { v: number } ? Omit<M, 'v'> : never) : never;

/** What some sequences at once came to. */
export interface Round {
  readonly tokens: number;
  readonly seconds: number;
  /** CPU time of the engine's main thread, where its JavaScript runs, and of the whole process. */
  readonly mainThreadSeconds: number;
  readonly cpuSeconds: number;
}

/** A loaded engine on one compute thread. Whoever started it closes it. */
export class EngineDriver {
  readonly #child: ChildProcess;
  #nextId = 1;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  static async start(file: string, seats: number): Promise<EngineDriver> {
    const child = fork(ENTRY, { serialization: 'advanced', stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
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
        prefillTokensPerStep: 512,
        prefillShare: 100,
        // Each round sends the same prompts again, and the figures are of runs that evaluate them.
        prefixReuse: 'off',
        heartbeatMs: 1000,
      },
    });
    await driver.#hear((message) => message.kind === 'ready');
    return driver;
  }

  /** Runs `sequences` replies side by side, each of exactly `tokens` tokens if the model never ends one before. */
  async round(sequences: number, promptTokens: number, tokens: number): Promise<Round> {
    const open = new Set<number>();
    let generated = 0;
    const cpuBefore = await cpuOf(Number(this.#child.pid));
    const from = performance.now();
    for (let i = 0; i < sequences; i++) {
      const id = this.#nextId++;
      open.add(id);
      this.#send({ kind: 'generate', id, job: job(i, promptTokens, tokens) });
    }
    await this.#hear((message) => {
      if (message.kind !== 'step') return false;
      for (const output of message.outputs) {
        if (output.kind === 'failed') throw new Error(output.reason);
        if (output.kind === 'finished') generated += output.completionTokens;
        if (output.kind === 'done') open.delete(output.id);
      }
      return open.size === 0;
    });
    const seconds = (performance.now() - from) / 1000;
    const cpu = await cpuOf(Number(this.#child.pid));
    return {
      tokens: generated,
      seconds,
      mainThreadSeconds: cpu.mainThread - cpuBefore.mainThread,
      cpuSeconds: cpu.all - cpuBefore.all,
    };
  }

  /** As many rounds one after another as make `replies` replies, as one: at few sequences a single round is too short. */
  async rounds(replies: number, sequences: number, promptTokens: number, tokens: number): Promise<Round> {
    const sum = { tokens: 0, seconds: 0, mainThreadSeconds: 0, cpuSeconds: 0 };
    for (let made = 0; made < replies; made += sequences) {
      const round = await this.round(sequences, promptTokens, tokens);
      sum.tokens += round.tokens;
      sum.seconds += round.seconds;
      sum.mainThreadSeconds += round.mainThreadSeconds;
      sum.cpuSeconds += round.cpuSeconds;
    }
    return sum;
  }

  async close(): Promise<void> {
    this.#send({ kind: 'shutdown' });
    await once(this.#child, 'exit', { signal: AbortSignal.timeout(TIMEOUT_MS) });
  }

  #send(order: Order): void {
    this.#child.send({ v: PROTOCOL_VERSION, ...order });
  }

  /** Resolves with the first message that `isLast`; every one before is shown to it. */
  #hear(isLast: (message: FromEngine) => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => end(new Error('the engine does not answer')), TIMEOUT_MS);
      const hear = (message: FromEngine): void => {
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
        this.#child.off('message', hear).off('exit', left);
        if (error) reject(error);
        else resolve();
      };
      this.#child.on('message', hear).on('exit', left);
    });
  }
}

function job(i: number, promptTokens: number, maxTokens: number): GenerateJob {
  return {
    // Some ordinary tokens of any vocabulary, others for each sequence.
    prompt: Uint32Array.from({ length: promptTokens }, (_, at) => 300 + ((i * 31 + at * 7) % 100)),
    n: 1,
    seats: 1,
    maxTokens,
    temperature: 1,
    topP: 1,
    frequencyPenalty: 0,
    presencePenalty: 0,
    seed: i,
    stops: [],
  };
}

/** Seconds on a processor so far, as Linux counts them for each thread. */
async function cpuOf(pid: number): Promise<{ mainThread: number; all: number }> {
  const threads = await readdir(`/proc/${pid}/task`);
  const seconds = async (thread: string): Promise<number> =>
    Number((await readFile(`/proc/${pid}/task/${thread}/schedstat`, 'utf8')).split(' ')[0]) / 1e9;
  const each = await Promise.all(threads.map(async (thread) => [thread, await seconds(thread)] as const));
  return {
    mainThread: each.find(([thread]) => Number(thread) === pid)?.[1] ?? NaN,
    all: each.reduce((sum, [, spent]) => sum + spent, 0),
  };
}
