/** Settings of where usage events are sent. */
import type { ValueOf } from '../contracts/validator.js';
import { bytes, flag, integer, KIB, list, MIB, milliseconds, path, section, text } from './setting.js';

/** More addresses of one cluster than this are a mistake; clients discover the others or do not need them. */
const MAX_ADDRESSES = 16;

const natsSchema = section({
  servers: list(
    'NATS servers of one cluster, each as `nats://host:port`.',
    text('', { pattern: '^nats://[^\\s/@]+$', maxLength: 300 }),
    MAX_ADDRESSES,
  ),
  stream: text('The stream that must store the events.', {
    default: 'USAGE',
    pattern: '^[A-Za-z0-9_-]+$',
    maxLength: 255,
  }),
  subject: text(
    'The subject of an event. `{account}` becomes the account, its bytes other than letters, digits, `-` and `_` as `%` and two digits.',
    { default: 'usage.{account}', pattern: '^([A-Za-z0-9_-]+\\.)*\\{account\\}(\\.[A-Za-z0-9_-]+)*$', maxLength: 256 },
  ),
  auth: text('How the sidecar authenticates, with the content of `secretFile`.', {
    enum: ['none', 'password', 'token', 'nkey', 'creds'],
    default: 'none',
  }),
  secretFile: path(
    'File with `user:password`, a token, the seed of a user’s nkey, or a creds file, by `auth`; read again for each connection.',
    { defaultText: 'none' },
  ),
  tls: flag('Require TLS.', false),
  caFile: path('File with the authorities that may sign the servers’ certificates, PEM.', {
    defaultText: 'none: Node’s own',
  }),
  certFile: path('File with a client certificate, PEM.', { defaultText: 'none' }),
  keyFile: path('File with its key, PEM.', { defaultText: 'none' }),
});

/** The section `delivery`: the destination of usage events. */
export const deliverySchema = section({
  url: text(
    'Where usage events are posted (docs/usage.md#delivery-over-http). Set at most one of this and `delivery.nats.servers`.',
    { pattern: '^https?://', maxLength: 2048, defaultText: 'none' },
  ),
  secretFile: path('File with the bearer secret for `url`, read again for each batch.', {
    defaultText: 'none: no secret is sent',
  }),
  nats: natsSchema,
  source: text('`source` of the events.', { default: '/ra-sidecar', pattern: '^[\\x21-\\x7e]+$', maxLength: 256 }),
  maxEvents: integer('The most events in one batch.', { default: 500, minimum: 1, maximum: 10_000, unit: 'events' }),
  maxBytes: bytes('The most bytes in one batch.', { default: MIB, minimum: 4 * KIB }),
  maxAgeMs: milliseconds('How long an event may wait for its batch to fill.', { default: 1000 }),
  // Node's own limit for a response head is five minutes.
  timeoutMs: integer('How long the sink may take for one batch, with NATS for one event.', {
    default: 10_000,
    minimum: 1,
    maximum: 300_000,
    unit: 'ms',
  }),
  backoffMinMs: milliseconds('The wait after the first failure; it doubles with each further one.', {
    default: 500,
    minimum: 1,
  }),
  backoffMaxMs: milliseconds('The longest wait after a failure, unless `Retry-After` names a longer one.', {
    default: 60_000,
    minimum: 1,
  }),
  stopMs: milliseconds('How long waiting events may take to be sent after SIGTERM.', { default: 5000 }),
  deadLetterBytes: bytes('The most bytes of [dead letters](usage.md#dead-letters).', {
    default: 64 * MIB,
    minimum: 64 * KIB,
  }),
  retentionDays: integer('Without a sink: how long a spool file is kept after its last record. 0: without limit.', {
    default: 90,
    minimum: 0,
    maximum: 36_500,
    unit: 'days',
  }),
  retentionBytes: bytes(
    'Without a sink: the total size of spool files, at most `usage.maxBacklogBytes` less two segments.',
    { default: 2048 * MIB },
  ),
});

/** The destination of usage: that of `url` and `nats.servers` which is set. */
export type DeliveryConfig = ValueOf<typeof deliverySchema>;

export type NatsConfig = DeliveryConfig['nats'];
