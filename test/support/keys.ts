import type { StoredKey } from '../../sidecar/access/key-file.js';
import type { Credentials } from '../../sidecar/access/identity.js';
import { RequestLimits } from '../../sidecar/access/limits.js';
import { createKey } from '../../sidecar/access/keys.js';

/** A valid key for everything in `development`, and its entry in the keys file with `changes` over it. */
export function makeKey(changes: Partial<StoredKey> = {}): { readonly key: string; readonly stored: StoredKey } {
  const { key, stored } = createKey('ra-test-');
  return {
    key,
    stored: {
      ...stored,
      account: 'acme',
      created: '2026-01-01T00:00:00Z',
      entitlements: { development: { models: 'all' } },
      ...changes,
    },
  };
}

/** No key is limited. */
export function noLimits(): RequestLimits {
  const none = { inFlight: 0, perMinute: 0 };
  return new RequestLimits(
    { now: () => 0, after: () => () => undefined },
    { decisions: none, chat: none, embeddings: none, models: none },
  );
}

/** A request’s head with this Authorization header, from `address`. */
export function sends(authorization: string | undefined, address = '127.0.0.1'): Credentials {
  return { address, header: (name) => (name === 'authorization' ? authorization : undefined) };
}
