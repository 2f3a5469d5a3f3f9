/**
 * The settings: a JSON schema with defaults, bounds, units and descriptions, and the one source of docs/config.md. What
 * the schema cannot say (one setting against another) is in checks.ts; how paths, variables and messages are made from
 * it, in settings.ts. A part of the house with many settings has its section in a file of its own.
 */
import { accessSchema, authorizerSchema, gatewaySchema } from './access-schema.js';
import { consoleSchema } from './console-schema.js';
import { creditSchema, pricingSchema } from './credit-schema.js';
import { deliverySchema } from './delivery-schema.js';
import { fleetSchema } from './fleet-schema.js';
import { keysSection, limitsSection } from './keys-schema.js';
import { bytes, DAY_MS, integer, KIB, MIB, milliseconds, section, text, type SettingSchema } from './kinds.js';
import { listenSchema } from './listen-schema.js';
import { modelSchema } from './model-schema.js';
import { telemetrySchema } from './telemetry-schema.js';
import { operatorsSchema } from './operators-schema.js';
import { usageSchema } from './usage-schema.js';

/** The whole configuration. */
export const configSchema: SettingSchema = section({
  listen: listenSchema,
  operators: operatorsSchema,
  console: consoleSchema,
  environment: text('The environment whose entitlements apply to every key.', {
    default: 'development',
    maxLength: 64,
    pattern: '^[a-z0-9][a-z0-9_-]*$',
  }),
  dataDir: text('Folder of keys and other state, from the working directory.', { default: '.ra' }),
  access: accessSchema,
  keys: keysSection,
  limits: limitsSection,
  gateway: gatewaySchema,
  authorizer: authorizerSchema,
  models: {
    type: 'array',
    description: 'The models that are served, each by an engine process of its own.',
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
      'A request waits at most this long for a seat, its checks included. One that would wait longer is refused at once.',
      { default: 10_000 },
    ),
    waitingPerSeat: integer('Requests that may wait, for each seat of the model.', {
      default: 8,
      minimum: 0,
      maximum: 10_000,
      unit: 'requests',
    }),
    waitingBytes: bytes('Body bytes that all requests waiting for one model may hold together.', {
      default: 64 * MIB,
    }),
  }),
  bodies: section({
    chatBytes: bytes('The longest chat body.', { default: 80 * MIB, minimum: 1 }),
    totalBytes: bytes('All bodies held at once.', { default: 512 * MIB, minimum: 1 }),
    shortBytes: bytes(
      'The part of `bodies.totalBytes` that only bodies of up to 1 MiB may use, so that a few callers with long ones do not shut out all others.',
      { default: 64 * MIB },
    ),
    // Measured: bench/results/inline-size.md.
    inlineBytes: bytes('Up to this length a body is parsed on the sidecar’s own event loop, a longer one beside it.', {
      default: 16 * KIB,
      maximum: 64 * KIB,
    }),
  }),
  stream: section({
    keepAliveMs: milliseconds('After this long without a frame a stream carries a comment.', {
      default: 15_000,
      minimum: 100,
    }),
    // Some 2,000 tokens are asked about, some 4,000 wait; below 64 KiB every stream would be asked.
    maxBufferedBytes: bytes(
      'What may wait for the reader of one stream who is behind, besides what the system’s sockets hold; past that the reader is cut off and its request cancelled. From half of it on a stream asks for signs of reading (docs/http.md).',
      { default: MIB, minimum: 64 * KIB },
    ),
    totalBufferedBytes: bytes(
      'The same for all streams together, and for whole replies of which a part has to wait: past that the reader who is furthest behind is cut off.',
      { default: 64 * MIB, minimum: 64 * KIB },
    ),
  }),
  request: section({
    timeoutMs: milliseconds(
      'How long a request may take, waiting and running, from the last byte of its body; then it is ended with `timeout`. 0: no limit.',
      { default: 0 },
    ),
  }),
  decisions: section({
    isolate: {
      type: 'boolean',
      description:
        'Evaluate each question of a decision alone, so that its answer depends on the question and the input only, to the last bit. `false`: the questions of a request are evaluated together, on as many seats as are free, which is meant for GPUs and moves the last digits (bench/results/decisions.md).',
      default: true,
    },
  }),
  idempotency: section({
    maxKeys: integer('Completed `Idempotency-Key`s that are remembered; past that the oldest is forgotten.', {
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
      'After SIGTERM `/readyz` is red at once, and requests are still taken for so long, so that proxies that look there have sent their last one before any is refused. Three of their checks; 0: none.',
      { default: 0 },
    ),
    timeoutMs: milliseconds('How long running requests may go on after that.', { default: 30_000 }),
  }),
  engine: section({
    startTimeoutMs: milliseconds('An engine that is not ready after this long is killed and started again.', {
      default: 600_000,
      minimum: 1000,
    }),
    heartbeatMs: milliseconds('How often an engine says that its event loop turns.', { default: 500, minimum: 10 }),
    hangMs: milliseconds('No heartbeat, or work pending and no step, for this long: killed and started again.', {
      default: 30_000,
      minimum: 100,
    }),
    backoffMinMs: milliseconds('The wait before the first restart; it doubles with each further one.', {
      default: 250,
      minimum: 1,
    }),
    backoffMaxMs: milliseconds('The longest wait before a restart.', { default: 30_000, minimum: 1 }),
    checkMemory: {
      type: 'boolean',
      description:
        'Refuse a model that does not fit into the memory that is free, with the numbers, before it is loaded. Engines then load one after another.',
      default: true,
    },
  }),
  prompts: section({
    workers: integer(
      'Threads that parse, render and tokenize bodies longer than `bodies.inlineBytes`; shorter ones have a process of their own.',
      {
        default: 1,
        minimum: 1,
        maximum: 64,
        unit: 'threads',
      },
    ),
    silenceMs: milliseconds('No answer about one prompt for this long: its prompt host is killed and started again.', {
      default: 2000,
      minimum: 50,
    }),
    maxQueued: integer(
      'Prompts that may wait for a thread, short ones and long ones each. When it is reached the newest of the account with most waiting is refused.',
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
      description: 'Origins whose pages may call from a browser, for example `https://app.example`; `*`: any.',
      maxItems: 256,
      items: text('', { pattern: '^(\\*|https?://[^/\\s]+)$', maxLength: 300 }),
      default: [],
    },
  }),
  development: section({
    validateAnswers: {
      type: 'boolean',
      description:
        'Hold every answer and every frame of a stream to its schema, and log each that breaks it; callers see no difference. It costs time on each answer: leave it off in production.',
      default: false,
    },
  }),
  telemetry: telemetrySchema,
  log: section({
    level: text('The least serious log line that is written.', {
      enum: ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'],
      default: 'info',
    }),
  }),
});
