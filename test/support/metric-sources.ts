/** What metrics read of a model that has nothing to report. */
import type { ModelSources } from '../../sidecar/telemetry/metrics.js';
import type { QueueReading } from '../../sidecar/telemetry/queue-metrics.js';

/** The queue of a model with 8 seats and no request. */
export const IDLE_QUEUE: QueueReading = {
  seats: 8,
  busy: 0,
  kept: 0,
  waitingBy: { interactive: 0, standard: 0, batch: 0 },
  waitingBytes: 0,
  fairness: null,
  overload: {
    standing: false,
    leftMs: 0,
    patience: { 'first-token': { p10: null, p50: null, p90: null }, end: { p10: null, p50: null, p90: null } },
  },
  sessions: {
    turns: { kept: 0, cold: 0, first: 0 },
    keeps: { continued: 0, expired: 0, taken: 0, lost: 0 },
  },
  lent: { seats: 0, waiting: 0, ends: { ended: 0, recalled: 0, queued: 0 }, seatMs: 0, recalledMs: 0 },
  accounts: [],
  others: { waiting: 0, running: 0, seatMs: 0 },
};

/** One model’s sources, of which a test names those that it is about. */
export function sourcesOf(own: Partial<ModelSources>): ModelSources {
  return {
    queue: () => IDLE_QUEUE,
    engine: () => ({ state: 'ready', running: 0, kept: 0, capacity: 0 }),
    replicas: () => [],
    caches: () => [],
    load: () => ({ seats: 0, busy: 0, waiting: 0, heldTokens: 0, capacityTokens: 0, blockTokens: 64 }),
    ...own,
  };
}
