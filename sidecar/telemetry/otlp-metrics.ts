/** What the metrics page says of what is sent to an OTLP endpoint. */
import { OTLP_EXPORTS, TRACES_DROPPED } from './definitions/otlp.js';
import type { Counter, Instruments } from './instruments.js';

const SIGNALS = ['traces', 'metrics'] as const;
export type Signal = (typeof SIGNALS)[number];

/** queue_full: too many waited already; export_failed: the endpoint did not take the export that it was in. */
const DROPS = ['queue_full', 'export_failed'] as const;
export type DropLabel = (typeof DROPS)[number];

export class OtlpMetrics {
  readonly #exports: Counter<'signal' | 'outcome'>;
  readonly #dropped: Counter<'reason'>;

  constructor(instruments: Instruments) {
    this.#exports = instruments.counter(OTLP_EXPORTS);
    this.#dropped = instruments.counter(TRACES_DROPPED);
    for (const signal of SIGNALS) for (const outcome of ['ok', 'failed']) this.#exports.inc({ signal, outcome }, 0);
    for (const reason of DROPS) this.#dropped.inc({ reason }, 0);
  }

  /** An export came to its end. */
  exported(signal: Signal, ok: boolean): void {
    this.#exports.inc({ signal, outcome: ok ? 'ok' : 'failed' });
  }

  /** So many requests' traces will not be delivered. */
  dropped(reason: DropLabel, traces: number): void {
    this.#dropped.inc({ reason }, traces);
  }
}
