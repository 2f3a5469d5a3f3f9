import { integer, section, text, type SettingSchema } from './kinds.js';

/** More addresses of one cluster than this are a mistake; clients discover the others or do not need them. */
const MAX_ADDRESSES = 16;

function addresses(description: string, pattern: string, message?: string): SettingSchema {
  const items = text('', { pattern, maxLength: 300, ...(message !== undefined && { 'x-message': message }) });
  return { type: 'array', description, maxItems: MAX_ADDRESSES, items, default: [] };
}

/** TLS settings of a connection to a message bus, the same for each kind. */
const tls = {
  tls: {
    type: 'boolean',
    description: 'Require TLS.',
    default: false,
  },
  caFile: text('A file with the certificate authorities that are trusted to sign the servers’ certificates, PEM.', {
    defaultText: 'none: Node’s own',
  }),
  certFile: text('A file with a client certificate, PEM, for servers that require one.', { defaultText: 'none' }),
  keyFile: text('A file with the client certificate’s key, PEM.', { defaultText: 'none' }),
} as const satisfies Record<string, SettingSchema>;

/** The section `delivery.nats`. */
export const natsSchema: SettingSchema = section({
  servers: addresses(
    'NATS servers of one cluster, each as `nats://host:port`. Usage events are published to a JetStream stream there, in place of `delivery.url`.',
    '^nats://[^\\s/@]+$',
  ),
  stream: text('The stream that must store the events; it is an error if another stream receives their subject.', {
    default: 'USAGE',
    pattern: '^[A-Za-z0-9_-]+$',
    maxLength: 255,
  }),
  subject: text(
    'The subject of an event. `{account}` becomes the account, as one token of letters, digits, `-` and `_`; every other byte of it as `%` and two digits.',
    { default: 'usage.{account}', pattern: '^([A-Za-z0-9_-]+\\.)*\\{account\\}(\\.[A-Za-z0-9_-]+)*$', maxLength: 256 },
  ),
  window: integer('Accounts whose events may be in flight at once. Events of one account are sent one after another.', {
    default: 64,
    minimum: 1,
    maximum: 1024,
    unit: 'events',
  }),
  auth: text('How the sidecar authenticates, with the content of `secretFile`.', {
    enum: ['none', 'password', 'token', 'nkey', 'creds'],
    default: 'none',
  }),
  secretFile: text(
    'A file with `user:password`, a token, the seed of a user’s nkey, or a creds file, depending on `auth`. It is read again for each connection.',
    { defaultText: 'none' },
  ),
  ...tls,
});

/** The section `delivery.kafka`. */
export const kafkaSchema: SettingSchema = section({
  brokers: addresses(
    'Kafka brokers of one cluster, each as `host:port`, where the host is a name or an IPv4 address. Usage events are produced to a topic there, in place of `delivery.url`.',
    // KafkaJS takes what follows the first colon for the port.
    '^[^\\s/@:[\\]]+:\\d{1,5}$',
    'must be host:port, where the host is a name or an IPv4 address',
  ),
  topic: text('The topic of the events. It must exist.', {
    default: 'usage',
    pattern: '^[A-Za-z0-9._-]+$',
    maxLength: 249,
  }),
  auth: text('How the sidecar authenticates (SASL), with the content of `secretFile`.', {
    enum: ['none', 'plain', 'scram-sha-256', 'scram-sha-512'],
    default: 'none',
  }),
  secretFile: text('A file with `user:password`. It is read again for each connection.', { defaultText: 'none' }),
  ...tls,
});
