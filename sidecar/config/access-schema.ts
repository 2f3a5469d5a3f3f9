import { integer, milliseconds, section, text, type SettingSchema } from './kinds.js';

/** Who says who a caller is. */
export const accessSchema: SettingSchema = section({
  mode: text(
    '`keys`: the keys file. `authorizer`: an HTTP service. `gateway`: nobody is served but a gateway in front. With the first two a gateway is heeded as well once `gateway.secretFile` is set.',
    { enum: ['keys', 'authorizer', 'gateway'], default: 'keys' },
  ),
});

/** The gateway in front: docs/gateway.md. */
export const gatewaySchema: SettingSchema = section({
  secretFile: text(
    'File with the secrets that a gateway proves itself with, one a line, 32 to 256 visible ASCII characters each; read again when it changes and on SIGHUP.',
    { defaultText: 'none: no gateway is heeded' },
  ),
  class: text('Share of the seats that each account has behind a gateway, as `class` of a key.', {
    enum: ['interactive', 'standard', 'batch'],
    default: 'standard',
  }),
});

/** The HTTP authorizer: docs/authorizer.md. */
export const authorizerSchema: SettingSchema = section({
  url: text('Where to ask. `https`, or `http` to a loopback address or over `authorizer.socket`.', {
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
  send: text('What is sent of a key: its SHA-256, as the keys file has it, or the `key` itself.', {
    enum: ['hash', 'key'],
    default: 'hash',
  }),
  secretFile: text(
    'File whose first line is sent to the authorizer as `Authorization: Bearer`, so that it answers nobody else.',
    { defaultText: 'none' },
  ),
  timeoutMs: milliseconds('An answer that is not whole after this long is none.', { default: 2000, minimum: 10 }),
  concurrency: integer('Questions to it at once; past that `control_plane_overloaded`.', {
    default: 64,
    minimum: 1,
    maximum: 10_000,
    unit: 'requests',
  }),
  cache: section({
    entries: integer(
      'Callers that are remembered, and as many denials; past that the one asked for longest ago goes.',
      {
        default: 10_000,
        minimum: 0,
        maximum: 1_000_000,
        unit: 'keys',
      },
    ),
    ttlMs: milliseconds('How long a caller is known without asking again: so late is a revoked key noticed.', {
      default: 10_000,
    }),
    deniedTtlMs: milliseconds('The same for a denial: so late is a new key noticed that was tried too early.', {
      default: 2000,
    }),
    staleMs: milliseconds('How much longer a caller is known while the authorizer cannot answer.', { default: 60_000 }),
  }),
  breaker: section({
    failures: integer('After so many failures in a row it is left alone for `openMs`.', {
      default: 5,
      minimum: 1,
      maximum: 1000,
      unit: 'failures',
    }),
    openMs: milliseconds('How long it is left alone; then one question tries it.', { default: 5000, minimum: 1 }),
  }),
});
