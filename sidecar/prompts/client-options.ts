/** What a prompt host's client is made of, and what it reports. */
import type { Clock } from '../lib/clock.js';
import type { ModelReport, PromptModel } from './messages.js';

export interface PromptHostOptions {
  /** In the host's arguments, so that a list of processes tells which is which. */
  readonly name: string;
  readonly models: readonly PromptModel[];
  /** Threads of the host's pool; 0: it works in its own, one item after another. */
  readonly workers: number;
  /** No answer about a running item for this long, in ms: it fails and the host is killed. */
  readonly silenceMs: number;
  /** Items that may wait for a worker; one more is refused with capacity_exceeded. */
  readonly maxQueued: number;
  /** Bodies up to this many bytes are parsed on this side's event loop. */
  readonly inlineBytes: number;
  readonly clock: Clock;
  readonly hooks?: PromptHostHooks;
  /** Another worker module, for tests. */
  readonly workerFile?: string;
}

/** For logs and metrics. */
export interface PromptHostHooks {
  /** A host can take items; `startMs` since it was forked. */
  ready?(models: readonly ModelReport[], startMs: number): void;
  /** A host is gone, for this reason, and the next one starts in `delayMs`. */
  restart?(why: string, delayMs: number): void;
}

export interface PromptHostStats {
  /** It takes items now; false: it starts, for the first time or again. */
  readonly up: boolean;
  readonly queued: number;
  readonly running: number;
  readonly restarts: number;
  /** Why its last start failed, while none has come up since. */
  readonly problem?: string;
}
