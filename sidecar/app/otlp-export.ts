/** The export of traces and metrics to an OTLP endpoint, if one is configured. */
import { forgetOtelVariables, type Config } from '../config/config.js';
import { FileProblem, readText } from '../lib/checked-file.js';
import { systemClock } from '../lib/clock.js';
import type { Log } from '../telemetry/logger.js';
import type { Metrics } from '../telemetry/metrics.js';
import type { Tracing } from '../telemetry/tracing.js';
import type { Closers } from './closers.js';

/** The file's name in messages. */
const WHAT = 'telemetry.otlp.headersFile';

/** Room for sixteen headers with tokens; a longer file was probably named by mistake. */
const MAX_HEADER_BYTES = 64 * 1024;

/**
 * Starts the export, and loads OpenTelemetry's SDK, if an endpoint is configured. When closed it sends what is waiting, within
 * `telemetry.otlp.stopMs`. Undefined without tracing. Rejects with one line if the headers' file is invalid.
 */
export async function openOtlpExport(
  config: Config,
  metrics: Metrics,
  log: Log,
  closers: Closers,
): Promise<Tracing | undefined> {
  const { endpoint, headersFile, traces, samplePercent, stopMs, ...rest } = config.telemetry.otlp;
  if (endpoint === undefined || (!traces && !rest.metrics)) return undefined;
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
  closers.add({
    name: 'otlp export',
    withinMs: stopMs,
    close: () => otlp.close(),
    timedOut: () => log.warn('otlp export not finished in time'),
  });
  log.info('otlp export begins', { host: new URL(endpoint).host });
  return otlp.tracing;
}

/** The headers in the configured file. Rejects with a {@link FileProblem}, which quotes nothing. */
export async function readHeaders(file: string): Promise<Record<string, string>> {
  const text = await readText(WHAT, file, MAX_HEADER_BYTES);
  if (text === undefined) throw new FileProblem(WHAT, 'does not exist', file);
  const headers = parseHeaders(text);
  if (typeof headers === 'string') throw new FileProblem(WHAT, headers, file);
  return { ...headers };
}

/** The most headers in one file: endpoints need one or two. */
const MAX_HEADERS = 16;

/** RFC 9110's tokens, and the allowed characters of a header's value. */
const LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}):[ \t]*([\x20-\x7e]{1,4096})$/;

/** Headers that the exporter sets itself. */
const RESERVED: ReadonlySet<string> = new Set(['content-type', 'content-length', 'content-encoding', 'host']);

/**
 * The headers in a file's text, one `name: value` per line; empty lines and those that begin with `#` are ignored. A string is an error
 * message, which does not quote the file.
 */
export function parseHeaders(text: string): Readonly<Record<string, string>> | string {
  const headers: Record<string, string> = {};
  for (const [i, line] of text.split('\n').entries()) {
    const trimmed = line.trim();
    if (trimmed === '' || trimmed.startsWith('#')) continue;
    const [, name = '', value = ''] = LINE.exec(trimmed) ?? [];
    if (name === '' || RESERVED.has(name.toLowerCase())) return `line ${i + 1} is not a header that can be sent`;
    headers[name.toLowerCase()] = value;
  }
  const count = Object.keys(headers).length;
  return count >= 1 && count <= MAX_HEADERS ? headers : `must contain 1 to ${MAX_HEADERS} headers`;
}
