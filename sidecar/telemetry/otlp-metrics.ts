/** Metrics of exports to an OTLP endpoint. */
import { OTLP_EXPORTS, TRACES_DROPPED } from './definitions/otlp.js';
import type { Counter, Instruments } from './instruments.js';

const SIGNALS = ['traces', 'metrics'] as const;
export type Signal = (typeof SIGNALS)[number];

/** queue_full: too many traces waited; export_failed: the export that contained them failed. */
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

  /** An export has ended. */
  exported(signal: Signal, ok: boolean): void {
    this.#exports.inc({ signal, outcome: ok ? 'ok' : 'failed' });
  }

  /** Counts traces that will not be delivered. */
  dropped(reason: DropLabel, traces: number): void {
    this.#dropped.inc({ reason }, traces);
  }
}
