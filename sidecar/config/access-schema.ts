/** Settings of who may call: authentication, the keys file, limits, the gateway in front, the authorizer. */
import { integer, milliseconds, path, section, text } from './setting.js';

/** How callers are authenticated. */
export const accessSchema = section({
  mode: text(
    'Who names the account of a request (docs/contract.md#who-is-calling). With the first two, a gateway is served as well if `gateway.secretFile` is set.',
    { enum: ['keys', 'authorizer', 'gateway'], default: 'keys' },
  ),
});

export const keysSchema = section({
  source: text('Where keys are kept: in `keys.file`, or in the store (docs/store.md#keys-and-prices).', {
    enum: ['file', 'store'],
    default: 'file',
  }),
  file: path('The keys file.', { inDataDir: 'keys.json', defaultText: '`keys.json` in `dataDir`' }),
  pollMs: milliseconds(
    'How often the file is checked for changes without a file system event, as on network file systems.',
    { default: 2000, minimum: 100 },
  ),
  failuresPerMinute: integer('Failing keys from one address (docs/accounts.md#limits). 0: no limit.', {
    default: 60,
    minimum: 0,
    maximum: 100_000,
    unit: 'keys',
  }),
});

/** Limits of keys that have none of their own: `limits`. */
export const limitsSchema = section({
  // docs/accounts.md#limits has these numbers.
  decisions: limit(' at both decision routes together', 32, 600),
  chat: limit('', 0, 0),
  embeddings: limit(', with rerank', 0, 0),
  models: limit('', 0, 0),
});

function limit(what: string, inFlight: number, perMinute: number) {
  const most = { minimum: 0, maximum: 100_000, unit: 'requests' } as const;
  return section({
    inFlight: integer(`Requests that one key may have in flight${what}. 0: no limit.`, { default: inFlight, ...most }),
    perMinute: integer('The same in any 60 seconds. 0: no limit.', { default: perMinute, ...most }),
  });
}

/** The gateway in front: docs/gateway.md. */
export const gatewaySchema = section({
  secretFile: path('File of the secrets that authenticate a gateway, watched for changes.', {
    defaultText: 'none: no gateway is accepted',
  }),
  class: text('Service class of each account behind a gateway, as `class` of a key.', {
    enum: ['interactive', 'standard', 'batch'],
    default: 'standard',
  }),
});

/** The HTTP authorizer: docs/authorizer.md. */
export const authorizerSchema = section({
  url: text(
    'URL of the authorizer (docs/authorizer.md). `https`, or `http` to a loopback address or over `authorizer.socket`.',
    {
      defaultText: 'none',
      pattern: '^https?://[^\\s@#]+$',
      maxLength: 2048,
    },
  ),
  socket: path('Path of its Unix socket; `url` then gives the path and the host’s name.', {
    defaultText: 'none',
    maxLength: 107,
  }),
  send: text('What is sent: the key’s SHA-256, or the key itself.', { enum: ['hash', 'key'], default: 'hash' }),
  secretFile: path('File of secrets; the first one is sent as `Authorization: Bearer`.', { defaultText: 'none' }),
  timeoutMs: milliseconds('The longest time for a complete answer.', { default: 2000, minimum: 10 }),
  concurrency: integer('Lookups in flight at once.', {
    default: 64,
    minimum: 1,
    maximum: 10_000,
    unit: 'requests',
  }),
  cache: section({
    entries: integer('Callers that are cached, and as many denials.', {
      default: 10_000,
      minimum: 0,
      maximum: 1_000_000,
      unit: 'keys',
    }),
    ttlMs: milliseconds('How long a caller is cached.', { default: 10_000 }),
    deniedTtlMs: milliseconds('The same for a denial.', { default: 2000 }),
    staleMs: milliseconds('How much longer a cached caller is accepted while the authorizer fails.', {
      default: 60_000,
    }),
  }),
  breaker: section({
    failures: integer('Failures in a row that open the circuit breaker for `openMs`.', {
      default: 5,
      minimum: 1,
      maximum: 1000,
      unit: 'failures',
    }),
    openMs: milliseconds('How long the circuit breaker stays open; then one lookup tests the authorizer.', {
      default: 5000,
      minimum: 1,
    }),
  }),
});
