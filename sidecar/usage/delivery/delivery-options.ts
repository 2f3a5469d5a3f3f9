import type { Clock } from '../../lib/clock.js';
import type { Log } from '../../telemetry/logger.js';
import type { Position } from '../segments.js';
import type { BatchLimits } from './batch.js';
import type { CursorStore } from './cursor.js';
import type { DeadLetters } from './dead-letters.js';
import type { DeliverySink } from './sink.js';
import type { UsageSource } from './source.js';

export interface DeliveryLimits extends BatchLimits {
  /** The longest wait of an event before it is sent, ms; shorter if the backlog fills a batch. */
  readonly maxAgeMs: number;
  /** Waits after a failure, doubling from the first to the longest, ms. */
  readonly backoffMinMs: number;
  readonly backoffMaxMs: number;
  /** Time that stop() allows for waiting events, ms. */
  readonly stopMs: number;
}

/** Callbacks for the metrics. */
export interface DeliveryEvents {
  delivered(events: number): void;
  refused(events: number): void;
  /** The sink took a batch not, or only in part; it will be sent again. */
  retried(): void;
}

export interface DeliveryOptions {
  readonly clock: Clock;
  /** Milliseconds since 1970. */
  readonly date: () => number;
  /** Numbers from 0 to 1. */
  readonly random: () => number;
  readonly source: UsageSource;
  readonly sink: DeliverySink;
  readonly cursor: CursorStore;
  readonly deadLetters: DeadLetters;
  /** The position from which others still read the spool: nothing after it is pruned. */
  readonly keepFrom: () => Position;
  /** `source` of the events. */
  readonly eventSource: string;
  readonly limits: DeliveryLimits;
  readonly log: Log;
  readonly events: DeliveryEvents;
}
