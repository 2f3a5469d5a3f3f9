/** The metrics' units as docs/metrics.md has them, and in UCUM for OpenTelemetry: what is counted is in braces, in the singular. */
export const UNITS = {
  seconds: 's',
  'seconds since 1970': 's',
  bytes: 'By',
  ratio: '1',
  '0 or 1': '1',
  '1': '1',
  batches: '{batch}',
  connections: '{connection}',
  errors: '{error}',
  events: '{event}',
  exports: '{export}',
  files: '{file}',
  prefixes: '{prefix}',
  readers: '{reader}',
  records: '{record}',
  reloads: '{reload}',
  replies: '{reply}',
  requests: '{request}',
  restarts: '{restart}',
  seats: '{seat}',
  streams: '{stream}',
  tokens: '{token}',
  traces: '{trace}',
} as const;

export type Unit = keyof typeof UNITS;
