/** The settings, from which types and docs/config.md are made. Rules between settings: checks.ts. Large sections have own files. */
import type { ValueOf } from '../contracts/validator.js';
import { accessSchema, authorizerSchema, gatewaySchema, keysSchema, limitsSchema } from './access-schema.js';
import { deliverySchema } from './delivery-schema.js';
import { modelSchema } from './model-schema.js';
import { storeSchema } from './store-schema.js';
import {
  bytes,
  DAY_MS,
  flag,
  integer,
  KIB,
  list,
  MIB,
  host,
  milliseconds,
  path,
  port,
  section,
  text,
} from './setting.js';

/** The public listener, for callers or a gateway. */
const listenSchema = section({
  host: host('Address of the public listener. `::`: all addresses, IPv6 and IPv4.', '127.0.0.1'),
  port: port('Port of the public listener. 0: any free port.', 8080),
  tcp: flag('Listen on `host` and `port`. `false`: only on `socket`.', true),
  socket: path('Path of a Unix socket to listen on, at most 107 bytes.', { defaultText: 'none', maxLength: 107 }),
  socketMode: text('File mode of the socket, octal: which users may connect.', {
    default: '0660',
    pattern: '^0?[0-7]{3}$',
    maxLength: 4,
  }),
  maxConnections: integer('Open connections, idle ones included ([operating.md](operating.md#open-files)).', {
    minimum: 16,
    maximum: 1_000_000,
    unit: 'connections',
    defaultText: 'the limit of open files less the reserve, at most 65536',
  }),
});

/** TLS on the public listener's port. */
const tlsSchema = section({
  keyFile: path('File of the private key in PEM. The public port then speaks HTTPS (TLS 1.2 and 1.3) alone.', {
    defaultText: 'none: plain HTTP',
  }),
  certFile: path('File of the certificate and its chain in PEM. Both files are watched.', {
    defaultText: 'none: plain HTTP',
  }),
});

const operatorsSchema = section({
  host: host('Address of the operators’ listener. Loopback, unless `operators.secretFile` is set.', '127.0.0.1'),
  port: port('Port of the operators’ listener. 0: any free port.', 9090),
  secretFile: path(
    'File of secrets, watched for changes. The listener then requires one of them as the bearer token, but for its health routes, and manages keys (docs/accounts.md#over-http); `/readyz` gives `reasons` only with one.',
    { defaultText: 'no key is required' },
  ),
});

const consoleSchema = section({
  viewers: integer('Browsers that may show the console at once; a further one gets 429. 0: no console.', {
    default: 8,
    minimum: 0,
    maximum: 64,
    unit: 'viewers',
  }),
  // Below a quarter of a second there is no visible difference; past ten seconds a proxy may close the idle feed.
  intervalMs: integer('Time between two updates of the console.', {
    default: 1000,
    minimum: 250,
    maximum: 10_000,
    unit: 'ms',
  }),
});

const pricingSchema = section({
  source: text('Where prices are kept: in `pricing.file`, or in the store (docs/store.md#keys-and-prices).', {
    enum: ['file', 'store'],
    default: 'file',
  }),
  file: path('The price list, read at the start (docs/accounts.md#prices).', {
    defaultText: 'none: decisions at 0.042 USD per million tokens, all else free',
  }),
});

const creditSchema = section({
  source: text(
    'Where prepaid credit is kept: in this sidecar, with the grants of `credit.file`, or in the store (docs/store.md#prepaid-credit).',
    { enum: ['file', 'store'], default: 'file' },
  ),
  file: path('Grants of each account (docs/accounts.md#prepaid-credit).', {
    defaultText: 'none: no credit is checked',
  }),
  pollMs: milliseconds('How often the credit file is checked for changes.', { default: 2000, minimum: 100 }),
  reserve: text(
    'What a chat reserves: the most that it can cost, or a part that grows with its replies (docs/accounts.md#prepaid-credit).',
    { enum: ['whole', 'parts'], default: 'whole' },
  ),
  onLostBalances: text(
    'What a start does if records are missing between `usage/balances.json` and the spool (docs/accounts.md#balances-over-restarts). `refuse`: it fails. `begin`: it adds the records that remain to the sums in the file, if that is intact.',
    { enum: ['refuse', 'begin'], default: 'refuse' },
  ),
});

/** The section `usage`: the spool of usage records (docs/usage.md). */
const usageSchema = section({
  segmentBytes: bytes('Size of a segment of the spool.', { default: 16 * MIB, minimum: KIB }),
  maxUnsyncedMs: milliseconds('A record that is not durable after this long makes the spool unhealthy.', {
    default: 2000,
    minimum: 10,
  }),
  minFreeBytes: bytes('Less free disk space than this makes the spool unhealthy.', { default: 64 * MIB }),
  maxBacklogBytes: bytes('A larger spool than this is unhealthy.', { default: 4096 * MIB, minimum: 2 * KIB }),
  closeWaitMs: milliseconds('How long a reply’s last bytes wait for its usage record to be durable.', {
    default: 10_000,
  }),
});

/** One sidecar among several (docs/kubernetes.md). Off by default: it shows the load to all who reach the public listener. */
const fleetSchema = section({
  pickerMetrics: flag(
    'Answer `/metrics` on the public listener, without a key, with the load for an endpoint picker (docs/kubernetes.md#metrics-on-the-public-listener).',
    false,
  ),
  scrapeSecretFile: path(
    'File of secrets, watched for changes: with one as the bearer token `/metrics` on the public listener has all metrics.',
    { defaultText: 'none' },
  ),
  loadReport: text(
    'The response header `endpoint-load-metrics` (docs/kubernetes.md#load-reports). `asked`: if the request names a format; `text`, `json`: on every response, in that format unless the request names another.',
    { enum: ['off', 'asked', 'text', 'json'], default: 'off' },
  ),
});

/** The section `telemetry`: exports to a collector. /metrics and the log do not depend on it. */
const telemetrySchema = section({
  otlp: section({
    endpoint: text(
      'Where traces and metrics are sent, by OTLP over HTTP (docs/operating.md#traces-and-metrics-by-otlp), without `/v1/traces` and `/v1/metrics`.',
      { pattern: '^https?://', maxLength: 2048, defaultText: 'none' },
    ),
    headersFile: path('File with headers for the endpoint, one `name: value` per line, read again for each export.', {
      defaultText: 'none: no header is added',
    }),
    serviceName: text('`service.name` of all that is sent.', {
      default: 'ra-sidecar',
      pattern: '^[\\x21-\\x7e]+$',
      maxLength: 128,
    }),
    traces: flag('Send a trace of each sampled request.', true),
    metrics: flag('Send what `/metrics` shows.', true),
    samplePercent: integer('Share of the requests without a `traceparent` that are traced.', {
      default: 100,
      minimum: 0,
      maximum: 100,
      unit: '%',
    }),
    metricsIntervalMs: milliseconds('The time from one export of the metrics to the next.', {
      default: 60_000,
      minimum: 100,
    }),
    // A batch of an export has 32.
    maxQueued: integer('Requests whose traces may wait; further ones are dropped.', {
      default: 2048,
      minimum: 32,
      maximum: 1_000_000,
      unit: 'requests',
    }),
    // Node's own limit for a response head is five minutes.
    timeoutMs: integer('How long one export may take, retries included; then it is dropped.', {
      default: 10_000,
      minimum: 1,
      maximum: 300_000,
      unit: 'ms',
    }),
    stopMs: milliseconds('How long the last exports may take after SIGTERM.', { default: 3000 }),
  }),
});

const ENVIRONMENT_NAME = { maxLength: 64, pattern: '^[a-z0-9][a-z0-9_-]*$' } as const;

/** Whether a configuration may have this environment. */
export function isEnvironment(name: string): boolean {
  return name.length <= ENVIRONMENT_NAME.maxLength && new RegExp(ENVIRONMENT_NAME.pattern).test(name);
}

export const configSchema = section({
  listen: listenSchema,
  tls: tlsSchema,
  operators: operatorsSchema,
  console: consoleSchema,
  environment: text('The environment whose entitlements apply to every key.', {
    default: 'development',
    ...ENVIRONMENT_NAME,
  }),
  dataDir: path('Folder of keys and other state.', { default: '.ra' }),
  contract: text(
    '`compatible`: also what clients and agent frameworks send, and the Responses and the Messages API (docs/compatible.md).',
    { enum: ['strict', 'compatible'], default: 'strict' },
  ),
  messages: section({
    billingLine: text(
      'The first block of Claude Code’s system text, `x-anthropic-billing-header:`, which differs between requests: left out of the prompt, so that prefixes can be reused, or kept.',
      { enum: ['drop', 'keep'], default: 'drop' },
    ),
  }),
  access: accessSchema,
  keys: keysSchema,
  limits: limitsSchema,
  gateway: gatewaySchema,
  authorizer: authorizerSchema,
  store: storeSchema,
  models: {
    type: 'array',
    description: 'The models to serve. It must be set where `environment` is not `development`.',
    minItems: 1,
    maxItems: 16,
    items: modelSchema,
    default: [
      { id: 'ra-tiny-chat', kind: 'chat', file: 'embedded', seats: 8, contextPerSeat: 2048 },
      { id: 'ra-tiny-decide', kind: 'decision', file: 'embedded', seats: 2, contextPerSeat: 8192 },
    ],
  },
  queue: section({
    maxWaitMs: milliseconds(
      'The longest time that a request waits for a seat. One that is predicted to wait longer is refused at once (docs/admission.md#what-a-429-means).',
      { default: 10_000 },
    ),
    waitingPerSeat: integer('Requests that may wait, for each seat of the model.', {
      default: 8,
      minimum: 0,
      maximum: 10_000,
      unit: 'requests',
    }),
    waitingBytes: bytes('Total body bytes of all requests that wait for one model.', { default: 64 * MIB }),
    waitForLoad: flag(
      'Requests also wait while their model loads, if that is estimated to take no longer than `queue.maxWaitMs`. `false`: they get 503 `cold` at once, for a balancer that has other sidecars.',
      true,
    ),
  }),
  sessions: section({
    keepMaxMs: milliseconds(
      'How long a seat may stay with its session after a turn (docs/admission.md#agents-sessions). 0: no session is recognised.',
      { default: 120_000, maximum: 600_000 },
    ),
  }),
  batch: section({
    store: text(
      'Where `/v1/files` and `/v1/batches` keep files and answers ([batches.md](batches.md)). `off`: neither is served.',
      { enum: ['off', 'memory', 'disk'], default: 'off' },
    ),
    keyFile: path(
      'File of secrets, read at the start: the first one seals stored files, the others still open what they sealed.',
      { defaultText: 'none; `batch.store` `disk` needs it' },
    ),
    maxBytes: bytes('Bytes of all stored files.', { default: 8192 * MIB }),
    headroomPercent: integer(
      'The part of a model’s seats, rounded down, that stays idle while others are lent (docs/admission.md#lent-seats). 100: no seat is lent.',
      { default: 50, minimum: 0, maximum: 100, unit: '%' },
    ),
  }),
  bodies: section({
    chatBytes: bytes('The longest chat body.', { default: 80 * MIB, minimum: 1 }),
    totalBytes: bytes('Total bytes of all bodies in memory.', { default: 512 * MIB, minimum: 1 }),
    shortBytes: bytes('The part of `bodies.totalBytes` that only bodies of up to 1 MiB may use.', {
      default: 64 * MIB,
    }),
    // Measured once: bench/results/inline-size.md.
    inlineBytes: bytes('Up to this length a body is parsed on the sidecar’s event loop.', {
      default: 16 * KIB,
      maximum: 64 * KIB,
    }),
  }),
  stream: section({
    keepAliveMs: milliseconds('After this long without a frame a stream sends a comment.', {
      default: 15_000,
      minimum: 100,
    }),
    trailer: {
      type: 'string',
      description:
        'Which streams end with a trailer (docs/contract.md#server-timing): those of requests with `TE: trailers`, or all; Varnish and others cut a stream that has one.',
      enum: ['asked', 'always'],
      default: 'asked',
    },
    // About 2,000 tokens until a stream switches to `tryEnd`, about 4,000 until the bound; below 64 KiB every stream
    // would switch.
    maxBufferedBytes: bytes(
      'Bytes of one stream that may wait for a slow reader; past that its connection is closed (docs/http.md#slow-and-stalled-readers).',
      { default: MIB, minimum: 64 * KIB },
    ),
    totalBufferedBytes: bytes(
      'The same for all streams and whole replies: past that the connection with the most unread bytes is closed.',
      { default: 64 * MIB, minimum: 64 * KIB },
    ),
  }),
  request: section({
    timeoutMs: milliseconds('How long a request may wait and run; then it ends with `timeout`. 0: no limit.', {
      default: 0,
    }),
  }),
  decisions: section({
    isolate: flag(
      'Evaluate each question of a decision alone. `false`: together, on as many seats as are free, for GPUs (docs/decisions.md#what-an-answer-depends-on).',
      true,
    ),
  }),
  idempotency: section({
    maxKeys: integer('Completed `Idempotency-Key`s that are remembered.', {
      default: 100_000,
      minimum: 0,
      maximum: 10_000_000,
      unit: 'keys',
    }),
    keepMs: milliseconds('How long a completed `Idempotency-Key` is remembered.', { default: DAY_MS }),
  }),
  pricing: pricingSchema,
  credit: creditSchema,
  delivery: deliverySchema,
  usage: usageSchema,
  fleet: fleetSchema,
  drain: section({
    noticeMs: milliseconds(
      'How long requests are still accepted after SIGTERM, while `/readyz` answers 503: three of the proxy’s check intervals.',
      { default: 0 },
    ),
    timeoutMs: milliseconds('How long running requests may continue after `drain.noticeMs`.', { default: 30_000 }),
  }),
  engine: section({
    startTimeoutMs: milliseconds('An engine that is not ready after this long is killed and restarted.', {
      default: 600_000,
      minimum: 1000,
    }),
    hangMs: milliseconds(
      'The same without a heartbeat, or with pending work and no step.',
      // Twice the time between two heartbeats.
      { default: 30_000, minimum: 1000 },
    ),
    backoffMinMs: milliseconds('The wait before the first restart; it doubles with each further one.', {
      default: 250,
      minimum: 1,
    }),
    backoffMaxMs: milliseconds('The longest wait before a restart.', { default: 30_000, minimum: 1 }),
    reloadWaitMs: milliseconds(
      'How long a reload of weights waits at each replica for jobs of the process that the last one replaced, and, where memory does not allow two processes, as long again for those of the present one.',
      { default: 600_000 },
    ),
    checkMemory: flag(
      'Refuse to load a model that does not fit into free memory. Engines then load one after another.',
      true,
    ),
  }),
  prompts: section({
    workers: integer('Threads that parse, render and tokenize bodies longer than `bodies.inlineBytes`.', {
      default: 1,
      minimum: 1,
      maximum: 64,
      unit: 'threads',
    }),
    silenceMs: milliseconds(
      'A prompt host that does not answer for one prompt for this long, and 1 ms more for each 32 KiB of its body, is killed and restarted.',
      { default: 2000, minimum: 50 },
    ),
    maxQueued: integer('Prompts that may wait for a thread, counted separately for short and long ones.', {
      default: 1024,
      minimum: 1,
      maximum: 1_000_000,
      unit: 'prompts',
    }),
  }),
  cors: section({
    origins: list(
      'Origins whose web pages may send requests (docs/http.md#web-pages); `*`: any.',
      text('', { pattern: '^(\\*|https?://[^/\\s]+)$', maxLength: 300 }),
      256,
    ),
  }),
  development: section({
    learnedQueue: flag(
      'Learn callers’ patience and prevent a standing queue (docs/admission.md#overload). `false`, for comparisons: only `queue.maxWaitMs` bounds waits.',
      true,
    ),
    validateAnswers: flag(
      'Validate every answer and stream frame against its schema, and log violations; it costs time.',
      false,
    ),
  }),
  telemetry: telemetrySchema,
  log: section({
    level: text('The lowest level of log lines that are written.', {
      enum: ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'],
      default: 'info',
    }),
  }),
});

/** The configuration: checked once at the start, paths absolute, and frozen, lists included. */
export type Config = ValueOf<typeof configSchema>;
