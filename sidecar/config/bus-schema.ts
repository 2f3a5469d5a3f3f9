import { integer, section, text, type SettingSchema } from './kinds.js';

/** More addresses of one cluster than this are a slip of the hand; a client learns of the others by itself or needs none. */
const MAX_ADDRESSES = 16;

function addresses(description: string, pattern: string): SettingSchema {
  const items = text('', { pattern, maxLength: 300 });
  return { type: 'array', description, maxItems: MAX_ADDRESSES, items, default: [] };
}

/** How a connection to a message bus is kept secret: the same for each. */
const tls = {
  tls: {
    type: 'boolean',
    description: 'Connect by TLS or not at all.',
    default: false,
  },
  caFile: text('A file with the authorities that may have signed the servers’ certificates, PEM.', {
    defaultText: 'none: those that Node knows',
  }),
  certFile: text('A file with a certificate of our own, PEM, where the servers ask for one.', { defaultText: 'none' }),
  keyFile: text('A file with that certificate’s key, PEM.', { defaultText: 'none' }),
} as const satisfies Record<string, SettingSchema>;

/** The section `delivery.nats`. */
export const natsSchema: SettingSchema = section({
  servers: addresses(
    'NATS servers of one cluster, each as `nats://host:port`. Usage events are published to a JetStream stream there, in place of `delivery.url`.',
    '^nats://[^\\s/@]+$',
  ),
  stream: text('The stream that must store the events; another one that takes their subject is an error.', {
    default: 'USAGE',
    pattern: '^[A-Za-z0-9_-]+$',
    maxLength: 255,
  }),
  subject: text(
    'The subject of an event. `{account}` becomes the account, as one token of letters, digits, `-` and `_`; every other byte of it as `%` and two digits.',
    { default: 'usage.{account}', pattern: '^([A-Za-z0-9_-]+\\.)*\\{account\\}(\\.[A-Za-z0-9_-]+)*$', maxLength: 256 },
  ),
  window: integer('Accounts whose events may be under way at once. Those of one account go one after another.', {
    default: 64,
    minimum: 1,
    maximum: 1024,
    unit: 'events',
  }),
  auth: text('How we say who we are: by what is in `secretFile`.', {
    enum: ['none', 'password', 'token', 'nkey', 'creds'],
    default: 'none',
  }),
  secretFile: text(
    'A file with `user:password`, a token, the seed of a user’s nkey, or a creds file, as `auth` says. It is read again for each connection.',
    { defaultText: 'none' },
  ),
  ...tls,
});

/** The section `delivery.kafka`. */
export const kafkaSchema: SettingSchema = section({
  brokers: addresses(
    'Kafka brokers of one cluster, each as `host:port`. Usage events are produced to a topic there, in place of `delivery.url`.',
    '^[^\\s/@]+:\\d{1,5}$',
  ),
  topic: text('The topic of the events. It is not made where there is none.', {
    default: 'usage',
    pattern: '^[A-Za-z0-9._-]+$',
    maxLength: 249,
  }),
  auth: text('How we say who we are (SASL): by what is in `secretFile`.', {
    enum: ['none', 'plain', 'scram-sha-256', 'scram-sha-512'],
    default: 'none',
  }),
  secretFile: text('A file with `user:password`. It is read again for each connection.', { defaultText: 'none' }),
  ...tls,
});
