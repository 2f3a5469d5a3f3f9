import type { Log } from '../../sidecar/telemetry/logger.js';
import { fileURLToPath } from 'node:url';
import type { EngineSetup, GenerateJob } from '../../engine/protocol/messages.js';
import type { Clock } from '../../sidecar/lib/clock.js';
import {
  EngineProcess,
  type EngineEvents,
  type EngineProcessOptions,
  type EngineTiming,
} from '../../sidecar/engine-client/supervisor.js';
import { STUB_JOB, type StubScript } from './stub-script.js';

/** A real clock whose timers keep the process alive, as the service's listeners do. */
export const keepingClock: Clock = {
  now: () => performance.now(),
  after(ms, fn) {
    const timer = setTimeout(fn, ms);
    return () => clearTimeout(timer);
  },
};

export const STUB_ENTRY = fileURLToPath(new URL('./engine-stub.js', import.meta.url));

export const STUB_TIMING: EngineTiming = {
  startTimeoutMs: 20_000,
  hangMs: 10_000,
  backoffMinMs: 5,
  backoffMaxMs: 20,
  closeMs: 5000,
};

export function stubSetup(script: StubScript): EngineSetup {
  return {
    file: JSON.stringify(script),
    kind: 'chat',
    seats: 4,
    contextPerSeat: 64,
    threads: 1,
    gpu: false,
    flashAttention: 'auto',
    prefillTokensPerStep: 16,
    prefillShare: 100,
    prefixReuse: 'auto',
    heartbeatMs: 20,
  };
}

/** A job that makes the stub do `what`, with `tokens` behind it. */
export function stubJob(what: keyof typeof STUB_JOB, ...tokens: number[]): GenerateJob {
  return {
    prompt: Uint32Array.of(STUB_JOB[what], ...tokens),
    n: 1,
    seats: 1,
    maxTokens: 8,
    temperature: 1,
    topP: 1,
    frequencyPenalty: 0,
    presencePenalty: 0,
    seed: 1,
    stops: [],
  };
}

type Lost = Parameters<EngineEvents['onLost']>[0];

/** An EngineProcess on the stub, with all that it logs and reports. Its clean-up is the caller's: `engine.close()`. */
export class EngineHarness {
  readonly engine: EngineProcess;
  readonly lost: Lost[] = [];
  readonly restarts: number[] = [];
  readonly logs: string[] = [];
  readyCount = 0;
  unloads = 0;
  #waiters: (() => void)[] = [];

  constructor(
    script: StubScript = {},
    timing: Partial<EngineTiming> = {},
    entry = STUB_ENTRY,
    more: Pick<EngineProcessOptions, 'onDemand' | 'gate' | 'mappedElsewhere'> = {},
  ) {
    const line = (event: string, fields?: object): void => void this.logs.push(`${event} ${JSON.stringify(fields)}`);
    const log: Log = { info: line, warn: line, error: line, debug: line, forRequest: () => log };
    this.engine = new EngineProcess({
      entry,
      setup: stubSetup(script),
      timing: { ...STUB_TIMING, ...timing },
      clock: keepingClock,
      random: () => 1,
      log,
      model: 'stub',
      ...more,
      events: {
        onReady: () => {
          this.readyCount += 1;
          this.#wake();
        },
        onLost: (lost) => {
          this.lost.push(lost);
          this.#wake();
        },
        onUnload: () => {
          this.unloads += 1;
          this.#wake();
        },
        onRestart: (inMs) => {
          this.restarts.push(inMs);
          this.#wake();
        },
      },
    });
  }

  /** Settles once it was ready `count` times. */
  async ready(count = 1): Promise<void> {
    while (this.readyCount < count) await this.#event();
  }

  /** Settles once it was unloaded `count` times. */
  async unloaded(count = 1): Promise<void> {
    while (this.unloads < count) await this.#event();
  }

  /** Settles with the `count`th loss. */
  async loss(count = 1): Promise<Lost> {
    while (this.lost.length < count) await this.#event();
    return this.lost[count - 1]!;
  }

  async restart(count = 1): Promise<number> {
    while (this.restarts.length < count) await this.#event();
    return this.restarts[count - 1]!;
  }

  #event(): Promise<void> {
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  #wake(): void {
    for (const wake of this.#waiters.splice(0)) wake();
  }
}
