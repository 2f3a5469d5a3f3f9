import type { Log } from '../../sidecar/telemetry/logger.js';
import { fileURLToPath } from 'node:url';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import type { GenerateJob } from '../../engine/protocol/jobs.js';
import type { Clock } from '../../sidecar/lib/clock.js';
import { EngineReplica, type EngineReplicaOptions } from '../../sidecar/engine-client/replica.js';
import type { EngineTiming } from '../../sidecar/engine-client/restart-policy.js';
import { STUB_JOB, type StubScript } from './stub-script.js';
import { generateJob } from './generate-job.js';

/** A real clock whose timers keep the process alive, as the service’s listeners do. */
export const keepingClock: Clock = {
  now: () => performance.now(),
  after(ms, fn) {
    const timer = setTimeout(fn, ms);
    return () => clearTimeout(timer);
  },
};

export const STUB_ENTRY = fileURLToPath(new URL('./engine-stub.js', import.meta.url));

const STUB_TIMING: EngineTiming = {
  startTimeoutMs: 20_000,
  hangMs: 10_000,
  backoffMinMs: 5,
  backoffMaxMs: 20,
  closeMs: 5000,
  reloadWaitMs: 20_000,
};

function stubSetup(script: StubScript): EngineSetup {
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

/** A job that makes the stub do `what`, followed by `tokens`. */
export function stubJob(what: keyof typeof STUB_JOB, ...tokens: number[]): GenerateJob {
  return generateJob([STUB_JOB[what], ...tokens]);
}

/** The end of a process as logged; `detail` of a final one is what the operator reads. */
interface Lost {
  readonly reason: string;
  detail: string | undefined;
  readonly final: boolean;
  readonly signal?: string;
  readonly code?: number;
}

/** The replica’s log lines that the harness reads. */
interface LogFields {
  readonly reason?: string;
  readonly signal?: string;
  readonly exitCode?: number;
}

/** A EngineReplica on the stub, with its log lines and events. The caller closes it: `engine.close()`. */
export class EngineHarness {
  readonly engine: EngineReplica;
  readonly lost: Lost[] = [];
  readonly restarts: number[] = [];
  readonly logs: string[] = [];
  /** Every reported number of seats, oldest first. */
  readonly seats: number[] = [];
  unloads = 0;
  #waiters: (() => void)[] = [];

  constructor(
    script: StubScript = {},
    timing: Partial<EngineTiming> = {},
    entry = STUB_ENTRY,
    more: Partial<
      Pick<EngineReplicaOptions, 'clock' | 'onDemand' | 'gate' | 'devices' | 'weights' | 'mappedElsewhere'> &
        Pick<EngineSetup, 'gpu'>
    > = {},
  ) {
    const { gpu, ...options } = more;
    const line = (event: string, fields: LogFields = {}): void => {
      this.logs.push(`${event} ${JSON.stringify(fields)}`);
      this.#read(event, fields);
    };
    const log: Log = { info: line, warn: line, error: line, debug: line, forRequest: () => log };
    this.engine = new EngineReplica({
      entry,
      setup: { ...stubSetup(script), ...(gpu !== undefined && { gpu }) },
      timing: { ...STUB_TIMING, ...timing },
      clock: keepingClock,
      random: () => 1,
      log,
      names: { model: 'stub' },
      ...options,
      events: {
        seats: (count) => {
          this.seats.push(count);
          this.#wake();
        },
        unservable: (why) => {
          this.lost.at(-1)!.detail = why;
        },
        unconfirmed: () => undefined,
        restarting: (inMs) => {
          this.restarts.push(inMs);
          this.#wake();
        },
      },
    });
  }

  /** How often it was ready. */
  get readyCount(): number {
    return this.seats.filter((count) => count > 0).length;
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

  #read(event: string, { reason: text = '', signal, exitCode }: LogFields): void {
    const final = event === 'engine cannot serve its model';
    if (final || event === 'engine lost') {
      const [reason = '', ...rest] = text.split(': ');
      const detail = rest.length > 0 ? rest.join(': ') : undefined;
      const exit = { ...(signal !== undefined && { signal }), ...(exitCode !== undefined && { code: exitCode }) };
      this.lost.push({ reason, detail, final, ...exit });
    } else if (event === 'engine unloaded') this.unloads += 1;
    else return;
    this.#wake();
  }

  #event(): Promise<void> {
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  #wake(): void {
    for (const wake of this.#waiters.splice(0)) wake();
  }
}
