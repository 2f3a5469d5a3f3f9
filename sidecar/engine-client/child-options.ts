/** What an engine process is started with, and where its events go. */
import type { EngineFacts, EngineSetup } from '../../engine/protocol/setup.js';
import type { Clock } from '../lib/clock.js';
import type { EngineEvents } from './engine.js';
import type { ChildEnd } from './exit-reason.js';

export interface ChildTiming {
  /** From the fork to `ready`, ms. */
  readonly startTimeoutMs: number;
  /** A child that sends no messages, or has work and makes no step, for this long is killed. */
  readonly hangMs: number;
}

export interface ChildOptions {
  /** Path of the child's module. */
  readonly entry: string;
  readonly setup: EngineSetup;
  readonly timing: ChildTiming;
  readonly clock: Clock;
  /** Environment variables besides this process's own. */
  readonly environment?: Readonly<Record<string, string>>;
}

export interface ChildEvents {
  /** At most once. */
  ready(facts: EngineFacts): void;
  /**
   * Exactly once unless close() came first; also if it had to be killed, then without waiting for its exit. Jobs are
   * still in the mux: the listener must fail them.
   */
  ended(end: ChildEnd): void;
  /** The external server that computes for it cannot be used now. `reason`: one line. */
  serverProblem(reason: string): void;
  /** Changes of its capacity after `ready`. */
  readonly capacity: Pick<EngineEvents, 'seats' | 'unconfirmed'>;
  /** A receiver threw. */
  threw(error: unknown): void;
  /** One job failed; `reason` is one short line of the engine's own. */
  failed(reason: string): void;
}
