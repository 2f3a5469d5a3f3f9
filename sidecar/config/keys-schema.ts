import { integer, milliseconds, section, text, type SettingSchema } from './kinds.js';

/** The keys file: `keys`. */
export const keysSection: SettingSchema = section({
  file: text('The keys file, relative to the working directory.', { defaultText: '`keys.json` in `dataDir`' }),
  pollMs: milliseconds(
    'How often the keys file is checked for changes without a file system event, as on network file systems and bind mounts.',
    { default: 2000, minimum: 100 },
  ),
  failuresPerMinute: integer(
    'Failing keys from one address (IPv6: one /64) in a burst, and then per minute; past that a failing key gets 429 in place of 401. Valid keys are not affected. 0: no limit.',
    { default: 60, minimum: 0, maximum: 100_000, unit: 'keys' },
  ),
});

/** Limits of keys that have none of their own: `limits`. */
export const limitsSection: SettingSchema = section({
  // docs/contract.md#limits has these numbers.
  decisions: limit('both decision routes together', { inFlight: 32, perMinute: 600 }),
  chat: limit('chat', { inFlight: 0, perMinute: 0 }),
  models: limit('the model list', { inFlight: 0, perMinute: 0 }),
});

function limit(what: string, value: { readonly inFlight: number; readonly perMinute: number }): SettingSchema {
  const bounds = { minimum: 0, maximum: 100_000, unit: 'requests' };
  return section({
    inFlight: integer(`Requests that one key may have in flight at ${what}. 0: no limit.`, {
      default: value.inFlight,
      ...bounds,
    }),
    perMinute: integer(`Requests of one key at ${what} in any 60 seconds, refused ones not counted. 0: no limit.`, {
      default: value.perMinute,
      ...bounds,
    }),
  });
}
