/** Composes the export of traces and metrics to an OTLP endpoint, if one is configured. */
import { systemClock, withTimeout } from '../lib/clock.js';
import { forgetOtelVariables, type Config } from '../config/config.js';
import { FileProblem, readText } from '../lib/checked-file.js';
import { parseHeaders } from '../telemetry/otlp/headers.js';
import type { Log } from '../telemetry/logger.js';
import type { Metrics } from '../telemetry/metrics.js';
import type { Tracing } from '../telemetry/tracing.js';

/** The file's name in messages. */
const WHAT = 'telemetry.otlp.headersFile';

/** Room for sixteen headers with tokens; a longer file was probably named by mistake. */
const MAX_HEADER_BYTES = 64 * 1024;

export interface OtlpExport {
  /** Undefined: tracing is off. */
  readonly tracing: Tracing | undefined;
  /** Sends what is waiting, within `telemetry.otlp.stopMs`. Never rejects. */
  close(): Promise<void>;
}

const NO_EXPORT: OtlpExport = { tracing: undefined, close: () => Promise.resolve() };

/**
 * Starts the export if an endpoint is configured; only then OpenTelemetry's SDK is loaded. Rejects with one line if the
 * headers' file is invalid.
 */
export async function openOtlpExport(config: Config, metrics: Metrics, log: Log): Promise<OtlpExport> {
  const { endpoint, headersFile, traces, samplePercent, stopMs, ...rest } = config.telemetry.otlp;
  if (endpoint === undefined || (!traces && !rest.metrics)) return NO_EXPORT;
  let headers = headersFile === undefined ? {} : await readHeaders(headersFile);
  const forgotten = forgetOtelVariables();
  if (forgotten > 0) log.warn('variables of OpenTelemetry are not read', { count: forgotten });
  const { openOtlp } = await import('../telemetry/otlp/open.js');
  const otlp = openOtlp({
    ...rest,
    clock: systemClock,
    date: () => Date.now(),
    endpoint: endpoint.replace(/\/+$/, ''),
    environment: config.environment,
    traces,
    sampleRatio: samplePercent / 100,
    limits: rest,
    read: () => metrics.readings(),
    counted: metrics.otlp,
    log,
    headers: async () => {
      // If the file has become invalid, the last valid headers are used; the endpoint may reject them.
      if (headersFile !== undefined) headers = await readHeaders(headersFile).catch(() => headers);
      return headers;
    },
  });
  log.info('otlp export begins', { host: new URL(endpoint).host });
  return {
    tracing: otlp.tracing,
    close: async () => {
      if (!(await withTimeout(systemClock, stopMs, otlp.close()))) log.warn('otlp export not finished in time');
    },
  };
}

/** The headers in the configured file. Rejects with a {@link FileProblem}, which quotes nothing. */
export async function readHeaders(file: string): Promise<Record<string, string>> {
  const text = await readText(WHAT, file, MAX_HEADER_BYTES);
  if (text === undefined) throw new FileProblem(WHAT, 'does not exist', file);
  const headers = parseHeaders(text);
  if (typeof headers === 'string') throw new FileProblem(WHAT, headers, file);
  return { ...headers };
}
