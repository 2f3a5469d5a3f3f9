import { IdempotencyKeys } from '../../sidecar/access/idempotency.js';
import { QuotaLedger } from '../../sidecar/access/quotas.js';
import { SeatBoard, type Services } from '../../sidecar/api/services.js';
import { Metrics } from '../../sidecar/telemetry/metrics.js';
import { BUILT_IN_PRICES } from '../../sidecar/usage/prices.js';
import type { FakeClock } from './fake-clock.js';
import { ACME, FakeSpool, RecordingLog } from './in-process.js';
import { noLimits } from './keys.js';

/** The dependencies of routes without a server, on a fake clock: no models, limits, credit or keep-alives within a minute. */
export function routeServices(clock: FakeClock, own: Partial<Services>): Services {
  const models = own.models ?? new Map();
  let metrics: Metrics | undefined;
  return {
    clock,
    date: () => new Date(0),
    random: () => 0,
    contract: 'strict',
    billingLine: 'drop',
    identity: { resolve: () => Promise.resolve(ACME) },
    prompts: {
      open: () => {
        throw new Error('no prompt is made here');
      },
    },
    models,
    spool: new FakeSpool(),
    pricing: BUILT_IN_PRICES,
    credit: undefined,
    // They take two milliseconds to make, and most tests look at none.
    get metrics() {
      return (metrics ??= new Metrics([...models.keys()]));
    },
    board: new SeatBoard(),
    log: new RecordingLog(),
    idempotency: new IdempotencyKeys(clock, { maxKeys: 1, keepMs: 1 }),
    keyLimits: noLimits(),
    quotas: new QuotaLedger(clock, () => new Date(0)),
    limits: { chatBytes: 1000, inlineBytes: 1000, keepAliveMs: 60_000, timeoutMs: 0 },
    isolateDecisions: true,
    leaving: () => false,
    draining: () => false,
    ...own,
  };
}
