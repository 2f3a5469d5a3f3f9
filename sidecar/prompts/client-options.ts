/** Options of a prompt host's client, and its callbacks. */
import type { Clock } from '../lib/clock.js';
import type { ModelReport, PromptModel } from './messages.js';

export interface PromptHostOptions {
  /** Part of the host's arguments, so that process lists show which one it is. */
  readonly name: string;
  readonly models: readonly PromptModel[];
  /** Threads of the host's pool; 0: it uses its own thread, one item after another. */
  readonly workers: number;
  /** Time without an answer for a running item, ms: the item fails and the host is killed. */
  readonly silenceMs: number;
  /** Items that may wait for a worker; further ones are refused with capacity_exceeded. */
  readonly maxQueued: number;
  /** Bodies up to this many bytes are parsed on this process's event loop. */
  readonly inlineBytes: number;
  readonly clock: Clock;
  readonly hooks?: PromptHostHooks;
  /** Another worker module, for tests. */
  readonly workerFile?: string;
}

/** For logs and metrics. */
export interface PromptHostHooks {
  /** A host accepts items; `startMs` since it was forked. */
  ready?(models: readonly ModelReport[], startMs: number): void;
  /** A host has ended for this reason, and the next one starts in `delayMs`. */
  restart?(why: string, delayMs: number): void;
}

export interface PromptHostStats {
  /** True if it accepts items; false while it starts, for the first time or again. */
  readonly up: boolean;
  readonly queued: number;
  readonly running: number;
  readonly restarts: number;
  /** Why its last start failed, until one succeeds. */
  readonly problem?: string;
}
