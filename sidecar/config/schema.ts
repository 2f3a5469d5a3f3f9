/**
 * The settings: a JSON schema with defaults, bounds, units and descriptions, from which docs/config.md is generated.
 * Rules between settings are in checks.ts; settings.ts derives paths, variables and messages. Sections with many
 * settings have their own files.
 */
import { accessSchema, authorizerSchema, gatewaySchema } from './access-schema.js';
import { consoleSchema } from './console-schema.js';
import { creditSchema, pricingSchema } from './credit-schema.js';
import { deliverySchema } from './delivery-schema.js';
import { fleetSchema } from './fleet-schema.js';
import { keysSection, limitsSection } from './keys-schema.js';
import { bytes, DAY_MS, integer, KIB, MIB, milliseconds, section, text, type SettingSchema } from './kinds.js';
import { listenSchema, tlsSchema } from './listen-schema.js';
import { modelSchema } from './model-schema.js';
import { telemetrySchema } from './telemetry-schema.js';
import { operatorsSchema } from './operators-schema.js';
import { usageSchema } from './usage-schema.js';

/** What `environment` may be. */
export const ENVIRONMENT_NAME = { maxLength: 64, pattern: '^[a-z0-9][a-z0-9_-]*$' } as const;

/** The whole configuration. */
export const configSchema: SettingSchema = section({
  listen: listenSchema,
  tls: tlsSchema,
  operators: operatorsSchema,
  console: consoleSchema,
  environment: text('The environment whose entitlements apply to every key.', {
    default: 'development',
    ...ENVIRONMENT_NAME,
  }),
  dataDir: text('Folder of keys and other state, relative to the working directory.', { default: '.ra' }),
  contract: text(
    'Which chat requests are accepted. `strict`: the closed contract of docs/contract.md. `compatible`: also the fields, message forms and JSON schemas that OpenAI’s clients and agent frameworks send, and `POST /v1/responses` and `GET /v1/models/{id}` (docs/clients.md).',
    { enum: ['strict', 'compatible'], default: 'strict' },
  ),
  access: accessSchema,
  keys: keysSection,
  limits: limitsSection,
  gateway: gatewaySchema,
  authorizer: authorizerSchema,
  models: {
    type: 'array',
    description:
      'The models to serve, each by its own engine process. The default is for trying it out: where `environment` is not `development`, `models` must be set.',
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
      'The longest time that a request waits for a seat, its checks included; while a seat is free, they may take 5 s in any case. A request that is predicted to wait longer is refused at once. 0: no request waits for a seat.',
      { default: 10_000 },
    ),
    waitingPerSeat: integer('Requests that may wait, for each seat of the model.', {
      default: 8,
      minimum: 0,
      maximum: 10_000,
      unit: 'requests',
    }),
    waitingBytes: bytes('Total body bytes of all requests that wait for one model.', {
      default: 64 * MIB,
    }),
    waitForLoad: {
      type: 'boolean',
      description:
        'Requests wait for a seat also while their model is loaded or its engine is restarted, if that is estimated to take no longer than `queue.maxWaitMs`. `false`: they get 503 `cold` at once, for a balancer that has other sidecars.',
      default: true,
    },
  }),
  bodies: section({
    chatBytes: bytes('The longest chat body.', { default: 80 * MIB, minimum: 1 }),
    totalBytes: bytes('Total bytes of all bodies in memory.', { default: 512 * MIB, minimum: 1 }),
    shortBytes: bytes(
      'The part of `bodies.totalBytes` that only bodies of up to 1 MiB may use, so that a few callers with long bodies do not exclude all others.',
      { default: 64 * MIB },
    ),
    // Measured: bench/results/inline-size.md.
    inlineBytes: bytes(
      'Up to this length a body is parsed on the sidecar’s event loop, a longer one in a prompt host.',
      {
        default: 16 * KIB,
        maximum: 64 * KIB,
      },
    ),
  }),
  stream: section({
    keepAliveMs: milliseconds('After this long without a frame a stream sends a comment.', {
      default: 15_000,
      minimum: 100,
    }),
    intervalMs: milliseconds(
      'Text of a stream within this time after a frame is joined in the next frame: fewer frames for callers and less processor time, each frame up to this much later. The first token is sent at once. 0: a frame for each message of the engine, which sends one a step, or one for the steps of 10 ms.',
      { default: 0, maximum: 1000 },
    ),
    trailer: {
      type: 'string',
      description:
        'Which streams end with the trailer `Server-Timing: ra-ttft`. `asked`: those of requests with `TE: trailers`. `always`: all, for proxies that take trailers without asking for them; Varnish and others cut a stream that has one.',
      enum: ['asked', 'always'],
      default: 'asked',
    },
    // About 2,000 tokens until a stream switches to `tryEnd`, about 4,000 until the bound; below 64 KiB every stream
    // would switch.
    maxBufferedBytes: bytes(
      'Bytes of one stream that may wait for a slow reader, besides the system’s socket buffers; past that the connection is closed and the request cancelled. From half of it on the stream is written with backpressure (docs/http.md).',
      { default: MIB, minimum: 64 * KIB },
    ),
    totalBufferedBytes: bytes(
      'The same for all streams together, and for whole replies of which a part has to wait: past that the connection with the most unread bytes is closed.',
      { default: 64 * MIB, minimum: 64 * KIB },
    ),
  }),
  request: section({
    timeoutMs: milliseconds(
      'How long a request may take, waiting and running, from the last byte of its body; then it ends with `timeout`. 0: no limit.',
      { default: 0 },
    ),
  }),
  decisions: section({
    isolate: {
      type: 'boolean',
      description:
        'Evaluate each question of a decision alone, so that its answer depends only on the question and the input, bit for bit. `false`: the questions of a request are evaluated together, on as many seats as are free, which is meant for GPUs and changes the last digits (bench/results/decisions.md).',
      default: true,
    },
  }),
  idempotency: section({
    maxKeys: integer('Completed `Idempotency-Key`s that are remembered; past that the oldest is removed.', {
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
      'After SIGTERM `/readyz` answers 503 at once, but requests are still accepted for this long, so that proxies that poll it stop sending before any request is refused. Use three of their check intervals; 0: none.',
      { default: 0 },
    ),
    timeoutMs: milliseconds(
      'How long requests that still run may continue once new ones are refused, after `drain.noticeMs`.',
      { default: 30_000 },
    ),
  }),
  engine: section({
    startTimeoutMs: milliseconds('An engine that is not ready after this long is killed and restarted.', {
      default: 600_000,
      minimum: 1000,
    }),
    heartbeatMs: milliseconds('How often an engine sends a heartbeat.', { default: 500, minimum: 10 }),
    hangMs: milliseconds(
      'An engine without a heartbeat, or with pending work and no step, for this long is killed and restarted.',
      {
        default: 30_000,
        minimum: 100,
      },
    ),
    backoffMinMs: milliseconds('The wait before the first restart; it doubles with each further one.', {
      default: 250,
      minimum: 1,
    }),
    backoffMaxMs: milliseconds('The longest wait before a restart.', { default: 30_000, minimum: 1 }),
    fileSilenceMs: milliseconds(
      'A file of weights of which not a byte could be read for this long, as on a network share that does not answer, is not hashed: a reload fails, and a start is left to `engine.startTimeoutMs`.',
      // Several times what lies between two reports of the thread that reads it.
      { default: 120_000, minimum: 5000 },
    ),
    reloadWaitMs: milliseconds(
      'How long a reload of weights waits at each replica for the jobs that the reload before it left to the replaced process, and, where memory does not allow two processes, as long again for those of the present one. Past either it fails.',
      { default: 600_000 },
    ),
    checkMemory: {
      type: 'boolean',
      description:
        'Refuse to load a model that does not fit into free memory, with the numbers. Engines then load one after another.',
      default: true,
    },
  }),
  prompts: section({
    workers: integer(
      'Threads that parse, render and tokenize bodies longer than `bodies.inlineBytes`; shorter ones have a separate process.',
      {
        default: 1,
        minimum: 1,
        maximum: 64,
        unit: 'threads',
      },
    ),
    silenceMs: milliseconds(
      'A prompt host that does not answer for one prompt for this long, and 1 ms more for each 32 KiB of its body, is killed and restarted.',
      {
        default: 2000,
        minimum: 50,
      },
    ),
    maxQueued: integer(
      'Prompts that may wait for a thread, counted separately for short and long ones. At the limit the newest prompt of the account with the most waiting is refused.',
      {
        default: 1024,
        minimum: 1,
        maximum: 1_000_000,
        unit: 'prompts',
      },
    ),
  }),
  cors: section({
    origins: {
      type: 'array',
      description: 'Origins whose web pages may send requests, for example `https://app.example`; `*`: any.',
      maxItems: 256,
      items: text('', { pattern: '^(\\*|https?://[^/\\s]+)$', maxLength: 300 }),
      default: [],
    },
  }),
  development: section({
    learnedQueue: {
      type: 'boolean',
      description:
        'Learn callers’ patience and prevent a standing queue (docs/admission.md). `false` is for comparisons: only `queue.maxWaitMs` then bounds waits.',
      default: true,
    },
    validateAnswers: {
      type: 'boolean',
      description:
        'Validate every answer and every stream frame against its schema, and log violations; callers see no difference. It costs time on each answer: leave it off in production.',
      default: false,
    },
  }),
  telemetry: telemetrySchema,
  log: section({
    level: text('The lowest level of log lines that are written.', {
      enum: ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'],
      default: 'info',
    }),
  }),
});
