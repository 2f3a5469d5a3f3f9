import type { HashedFile } from '../../engine/protocol/file-key.js';
import type { EngineSetup } from '../../engine/protocol/setup.js';
import type { Clock } from '../lib/clock.js';
import type { Log } from '../telemetry/logger.js';
import type { ChildTiming } from './child.js';
import type { EngineEvents } from './engine.js';
import type { RestartTiming } from './restart-policy.js';
import type { StartGate } from './start-gate.js';

/** How long an engine may take to leave after `shutdown`, ms, unless the options say otherwise. */
export const CLOSE_MS = 2000;

export interface EngineTiming extends ChildTiming, RestartTiming {
  /** From `shutdown` to SIGKILL when closing; default {@link CLOSE_MS}. */
  readonly closeMs?: number;
  /** How long `replace` waits for the jobs of a process that is or was to be replaced. */
  readonly reloadWaitMs: number;
}

/** From `shutdown` to SIGKILL, ms. */
export function closeMsOf({ closeMs = CLOSE_MS }: EngineTiming): number {
  return closeMs;
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

export interface SupervisedReplicaOptions {
  /** Path of the engine's entry module, for fork. */
  readonly entry: string;
  readonly setup: EngineSetup;
  readonly timing: EngineTiming;
  readonly clock: Clock;
  /** From 0 to 1, to spread restarts. */
  readonly random: () => number;
  readonly log: Log;
  /** The model's id, and which of its replicas this is where there are several; for the log. */
  readonly names: { readonly model: string; readonly replica?: number };
  /** Environment variables of its process besides this process's own. */
  readonly environment?: Readonly<Record<string, string>>;
  readonly events: EngineEvents;
  /** Undefined: forked by start(), and never unloaded. */
  readonly onDemand?: OnDemand;
  /** Engines that must load one after another share one. */
  readonly gate?: StartGate;
  /** What it loads on, for the gate; absent: the host's memory, or all devices. */
  readonly devices?: readonly string[];
  /** What is known of the setup's file before each fork; undefined: nothing. Absent: the engine hashes it. */
  readonly weights?: (setup: EngineSetup) => Promise<HashedFile | undefined>;
  /** The estimated time until a file's hash is known, ms. Absent: 0. */
  readonly hashMsLeft?: (file: string) => number;
  /** Called at each fork with the path of its file, for EngineSetup.memory; without it memory is not checked. */
  readonly mappedElsewhere?: (file: string) => number;
}
