/** Options of a vision process's client. */
import type { VisionSetup } from '../../engine/protocol/vision-messages.js';
import type { Backoff } from '../lib/backoff.js';
import type { Clock } from '../lib/clock.js';
import type { Log } from '../telemetry/logger.js';
import type { VisionProcess, VisionProcessEvents } from './process.js';

export interface VisionClientOptions {
  readonly setup: VisionSetup;
  readonly clock: Clock;
  readonly log: Log;
  /** The model's id, for the log. */
  readonly model: string;
  /** Between two starts. */
  readonly backoff: Backoff;
  /** Another process, for tests. */
  readonly fork?: (setup: VisionSetup, clock: Clock, events: VisionProcessEvents) => Forked;
}

export type Forked = Pick<VisionProcess, 'send' | 'kill' | 'pid'>;
export type Message = Parameters<VisionProcessEvents['message']>[0];
