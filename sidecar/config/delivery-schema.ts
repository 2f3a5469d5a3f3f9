import { kafkaSchema, natsSchema } from './bus-schema.js';
import { bytes, integer, KIB, MIB, milliseconds, section, text, type SettingSchema } from './kinds.js';

/** The section `delivery`: where usage goes, and how. */
export const deliverySchema: SettingSchema = section({
  url: text(
    'Where usage events are posted (docs/delivery.md). At most one of this, `delivery.nats.servers` and `delivery.kafka.brokers` is set. Without any nothing is sent: the spool is kept for `ra-sidecar usage export`, as long as `retentionDays` and `retentionBytes` say.',
    { pattern: '^https?://', maxLength: 2048, defaultText: 'none' },
  ),
  secretFile: text(
    'A file, from the working directory, with the bearer secret that `url` asks for. It is read again for each batch, so that it can be changed at any time.',
    { defaultText: 'none: no secret is sent' },
  ),
  nats: natsSchema,
  kafka: kafkaSchema,
  source: text('`source` of the events. With the `id` it is what a sink counts by.', {
    default: '/ra-sidecar',
    pattern: '^[\\x21-\\x7e]+$',
    maxLength: 256,
  }),
  maxEvents: integer('The most events in one batch.', { default: 500, minimum: 1, maximum: 10_000, unit: 'events' }),
  maxBytes: bytes('The most bytes in one batch. As much backlog is sent at once.', {
    default: MIB,
    minimum: 4 * KIB,
  }),
  maxAgeMs: milliseconds('How long an event may wait for others to share its batch.', { default: 1000 }),
  // Node's own limit for an answer's head is five minutes.
  timeoutMs: integer('How long the sink may take for one batch, its answer included; with NATS for one event.', {
    default: 10_000,
    minimum: 1,
    maximum: 300_000,
    unit: 'ms',
  }),
  backoffMinMs: milliseconds('The wait after the first failure; it doubles with each further one.', {
    default: 500,
    minimum: 1,
  }),
  backoffMaxMs: milliseconds('The longest wait after a failure, unless the sink’s `Retry-After` names a longer one.', {
    default: 60_000,
    minimum: 1,
  }),
  stopMs: milliseconds('How long the events that still wait may take to leave after SIGTERM.', { default: 5000 }),
  deadLetterBytes: bytes(
    'The most bytes of dead letters. Past that delivery waits until someone has taken their file away.',
    { default: 64 * MIB, minimum: 64 * KIB },
  ),
  retentionDays: integer('Without a sink: how long a spool file is kept after its last record. 0: for ever.', {
    default: 90,
    minimum: 0,
    maximum: 36_500,
    unit: 'days',
  }),
  retentionBytes: bytes(
    'Without a sink: what spool files may hold together; the oldest go first. Two segments less than `usage.maxBacklogBytes` is the most that counts, so that what is kept never makes the spool unhealthy.',
    { default: 2048 * MIB },
  ),
});
