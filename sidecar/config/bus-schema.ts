import { integer, section, text, type SettingSchema } from './kinds.js';

/** More addresses of one cluster than this are a mistake; clients discover the others or do not need them. */
const MAX_ADDRESSES = 16;

/** The section `delivery.nats`. */
export const natsSchema: SettingSchema = section({
  servers: {
    type: 'array',
    description:
      'NATS servers of one cluster, each as `nats://host:port`. Usage events are published to a JetStream stream there, in place of `delivery.url`.',
    maxItems: MAX_ADDRESSES,
    items: text('', { pattern: '^nats://[^\\s/@]+$', maxLength: 300 }),
    default: [],
  },
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
  tls: { type: 'boolean', description: 'Require TLS.', default: false },
  caFile: text('A file with the certificate authorities that are trusted to sign the servers’ certificates, PEM.', {
    defaultText: 'none: Node’s own',
  }),
  certFile: text('A file with a client certificate, PEM, for servers that require one.', { defaultText: 'none' }),
  keyFile: text('A file with the client certificate’s key, PEM.', { defaultText: 'none' }),
});
