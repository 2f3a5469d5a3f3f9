/** Exports to an OTLP endpoint, and traces lost on the way. */
import { PREFIX, type CounterDefinition } from '../instruments.js';

export const OTLP_EXPORTS: CounterDefinition<'signal' | 'outcome'> = {
  name: `${PREFIX}otlp_exports_total`,
  type: 'counter',
  unit: 'exports',
  labels: ['signal', 'outcome'],
  help: 'Exports to the OTLP endpoint, by outcome.',
  advice: '`failed`: the log line `otlp export fails` has the reason. Requests are not affected.',
};

export const TRACES_DROPPED: CounterDefinition<'reason'> = {
  name: `${PREFIX}otlp_traces_dropped_total`,
  type: 'counter',
  unit: 'traces',
  labels: ['reason'],
  help: 'Traces that were not delivered.',
  advice:
    '`queue_full`: the endpoint is slower than the request rate; lower `telemetry.otlp.samplePercent`. `export_failed`: see `ra_sidecar_otlp_exports_total`.',
};

export const OTLP_METRICS = [OTLP_EXPORTS, TRACES_DROPPED] as const;
