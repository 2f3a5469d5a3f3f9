import type { StoredKey } from '../../sidecar/access/key-file.js';
import { createKey } from '../../sidecar/access/keys.js';

/** A good key for everything in `development`, and its entry in the keys file with `changes` over it. */
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
