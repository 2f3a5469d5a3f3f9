import { integer, milliseconds, section, text, type SettingSchema } from './kinds.js';

/** How callers are authenticated. */
export const accessSchema: SettingSchema = section({
  mode: text(
    '`keys`: the keys file. `authorizer`: an HTTP service. `gateway`: only requests of a gateway in front are served. With the first two, a gateway is served as well if `gateway.secretFile` is set.',
    { enum: ['keys', 'authorizer', 'gateway'], default: 'keys' },
  ),
});

/** The gateway in front: docs/gateway.md. */
export const gatewaySchema: SettingSchema = section({
  secretFile: text(
    'File with the secrets that authenticate a gateway, one a line, 32 to 256 visible ASCII characters each; read again when it changes and on SIGHUP.',
    { defaultText: 'none: no gateway is accepted' },
  ),
  class: text('Service class of each account behind a gateway, as `class` of a key.', {
    enum: ['interactive', 'standard', 'batch'],
    default: 'standard',
  }),
});

/** The HTTP authorizer: docs/authorizer.md. */
export const authorizerSchema: SettingSchema = section({
  url: text('URL of the authorizer. `https`, or `http` to a loopback address or over `authorizer.socket`.', {
    defaultText: 'none',
    pattern: '^https?://[^\\s@#]+$',
    maxLength: 2048,
  }),
  socket: text(
    'Path of a Unix socket on which the authorizer listens; `url` then gives the path and the host’s name.',
    {
      defaultText: 'none',
      maxLength: 107,
    },
  ),
  send: text('What is sent: the SHA-256 of the key, as in the keys file, or the `key` itself.', {
    enum: ['hash', 'key'],
    default: 'hash',
  }),
  secretFile: text(
    'File of secrets, one a line, each of 32 to 256 visible ASCII characters; lines that begin with `#` are comments. The first one is sent to the authorizer as `Authorization: Bearer`, to authenticate the sidecar.',
    { defaultText: 'none' },
  ),
  timeoutMs: milliseconds('The longest time for a complete answer.', { default: 2000, minimum: 10 }),
  concurrency: integer('Lookups in flight at once; past that `control_plane_overloaded`.', {
    default: 64,
    minimum: 1,
    maximum: 10_000,
    unit: 'requests',
  }),
  cache: section({
    entries: integer(
      'Callers that are cached, and as many denials; past that the least recently used one is removed.',
      {
        default: 10_000,
        minimum: 0,
        maximum: 1_000_000,
        unit: 'keys',
      },
    ),
    ttlMs: milliseconds('How long a caller is cached; a revoked key works for up to this long.', {
      default: 10_000,
    }),
    deniedTtlMs: milliseconds(
      'The same for a denial; a key that was used before it was created is rejected for up to this long.',
      {
        default: 2000,
      },
    ),
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
