/** When an engine process is ready, and when it has ended: what is logged, what the operator is told, and whether it is restarted. */
import { ENGINE_EXIT } from '../../engine/protocol/messages.js';
import type { EngineFacts, EngineSetup, GpuBackend } from '../../engine/protocol/setup.js';
import type { ChildEnd } from '../lib/child-process.js';
import { Backoff } from '../lib/clock.js';
import type { Log, LogFields } from '../telemetry/logger.js';
import type { ChildTiming } from './child.js';

/** Starts that crash before the model is considered the cause. */
const MAX_CRASHED_STARTS = 3;

/** What an operator installs where a backend failed before its first step. */
const INSTALLS: Readonly<Record<GpuBackend, string>> = {
  cuda: "install NVIDIA's driver R590 (CUDA 13.1) or newer, or compile the backend in a clone: GPU=cuda make engine-native",
  vulkan: 'install a newer Vulkan driver, or compile the backend in a clone: GPU=vulkan make engine-native',
  metal: 'install a newer version of the system',
};

/** What follows after an engine process ended. */
export type Next =
  /** No restart, since it would fail again. `why`: one line for the operator. `unfit`: by the engine's own word. */
  | { readonly kind: 'final'; readonly why: string; readonly unfit: boolean }
  /** A restart after `waitMs`. */
  | { readonly kind: 'again'; readonly waitMs: number };

export interface RestartTiming {
  /** The wait before a restart, from the first to the longest; a process that was ready for the longest wait resets it. */
  readonly backoffMinMs: number;
  readonly backoffMaxMs: number;
}

/** How long an engine may take to leave after `shutdown`, ms, unless the options say otherwise. */
export const CLOSE_MS = 2000;

export interface EngineTiming extends ChildTiming, RestartTiming {
  /** From `shutdown` to SIGKILL when closing; default {@link CLOSE_MS}. */
  readonly closeMs?: number;
  /** How long `replace` waits for the jobs of a process that is or was to be replaced. */
  readonly reloadWaitMs: number;
}

/** An engine process that runs only while requests need it. */
export interface OnDemand {
  /** Forked at the first wake(), and not by start(). */
  readonly lazy: boolean;
  /** Without a job for this long it is shut down until wake(); 0: never. */
  readonly idleUnloadMs: number;
  /** Whether a request holds or waits for a seat; then the process stays. */
  readonly wanted: () => boolean;
}

/**
 * Separates permanent failures from temporary ones. A file that cannot be served stays so. Memory used by other processes may become free;
 * but at the very first start this is reported at once to the operator. An engine that was ready once is always restarted.
 */
export class RestartPolicy {
  readonly #backoff: Backoff;
  readonly #maxMs: number;
  /** Whether a first start may be retried later, at the next request. */
  readonly #patient: boolean;
  #everReady = false;
  #crashedStarts = 0;

  constructor({ backoffMinMs, backoffMaxMs }: RestartTiming, random: () => number, patient: boolean) {
    this.#backoff = new Backoff(backoffMinMs, backoffMaxMs, random);
    this.#maxMs = backoffMaxMs;
    this.#patient = patient;
  }

  /** A process ended. `readyMs`: how long it was ready; undefined if it never was. */
  after(end: ChildEnd, readyMs: number | undefined): Next {
    if (readyMs !== undefined) this.#everReady = true;
    const why = this.#hopeless(end);
    if (why !== undefined) return { kind: 'final', why, unfit: end.reason === 'unable' };
    if (readyMs !== undefined && readyMs >= this.#maxMs) this.#backoff.reset();
    return { kind: 'again', waitMs: this.#backoff.next() };
  }

  #hopeless({ reason, detail, hint, mayMend }: ChildEnd): string | undefined {
    if (reason === 'unable') {
      return mayMend === true && (this.#everReady || this.#patient) ? undefined : (detail ?? 'no reason given');
    }
    if (this.#everReady || (reason !== 'aborted' && reason !== 'crashed')) return undefined;
    this.#crashedStarts += 1;
    if (this.#crashedStarts < MAX_CRASHED_STARTS) return undefined;
    const how = hint === undefined ? reason : `${reason}: ${hint}`;
    const look = hint === 'device-error' ? 'ra-sidecar doctor runs a step on the GPU' : 'the file may be damaged';
    return `llama.cpp ended each of ${MAX_CRASHED_STARTS} loads by a crash (${how}); ${look}`;
  }
}

/** How the engine process `pid` ended, for the log. */
export function endFields({ reason, detail, hint, code, signal }: ChildEnd, pid: number | undefined): LogFields {
  return {
    reason: [reason, detail, hint].filter(Boolean).join(': '),
    ...pidField(pid),
    ...(code !== null && { exitCode: code }),
    ...(signal !== null && { signal }),
  };
}

/** The id of a process, for the log. */
export function pidField(pid: number | undefined): LogFields {
  return pid === undefined ? {} : { pid };
}

/** Why there is no engine process, for operators; undefined while one that was ready is being restarted. */
export function problemOf({ reason, detail, code }: ChildEnd, wasReady: boolean): string | undefined {
  if (code === ENGINE_EXIT.lost) return detail;
  if (reason === 'unstartable') return `cannot be forked: ${detail ?? ''}`;
  return wasReady ? undefined : `its last start failed: ${[reason, detail].filter(Boolean).join(': ')}`;
}

/** Logs that a GPU's backend failed in a process before its first step, and what makes it work: another one is used. */
export function reportBackend(
  log: Log,
  names: Pick<LogFields, 'model' | 'replica'>,
  backend: GpuBackend,
  end: ChildEnd,
  pid: number | undefined,
): void {
  const { reason = end.reason, ...fields } = endFields(end, pid);
  const line = `${reason}; another backend is used. To use this one: ${INSTALLS[backend]}`;
  log.warn('GPU backend failed', { ...names, backend, ...fields, reason: line });
}

/** Logs that an engine process is ready, and what of its setup it could not have. `loadMs`: since its start. */
export function reportReady(
  log: Log,
  names: Pick<LogFields, 'model' | 'replica'>,
  facts: EngineFacts,
  { prefixCache, prefixReuse }: Pick<EngineSetup, 'prefixCache' | 'prefixReuse'>,
  loadMs: number,
): void {
  const { seats, gpu, prefixCacheBytes } = facts;
  log.info('engine ready', { ...names, seats, backend: gpu || 'cpu', durationMs: Math.round(loadMs) });
  for (const reason of facts.warnings ?? []) log.warn('engine should be set up otherwise', { ...names, reason });
  const asked = prefixReuse === 'off' ? 0 : (prefixCache?.bytes ?? 0);
  if (prefixCacheBytes === undefined || prefixCacheBytes >= asked) return;
  const reason = 'prefixCache.bytes is more than /dev/shm can hold';
  log.warn('prefix cache is smaller than configured', { ...names, bytes: prefixCacheBytes, reason });
}
