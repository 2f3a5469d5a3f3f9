import { createHash, randomBytes } from 'node:crypto';
import { readKeyFile, writeKeyFile, type StoredKey } from './key-file.js';

/** Random bytes in a key: 43 characters of base64url. */
const KEY_BYTES = 32;

/** The account of the key that a developer is given at the start. */
const DEVELOPMENT_ACCOUNT = 'development';

/** What the keys file holds of a key: SHA-256, hex. */
export function hashKey(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}

/** A fresh key, for example `ra-dev-` and 43 characters, and the two fields of its entry that depend on it. */
export function createKey(prefix: string): { readonly key: string; readonly stored: Pick<StoredKey, 'id' | 'hash'> } {
  const key = `${prefix}${randomBytes(KEY_BYTES).toString('base64url')}`;
  return { key, stored: { id: `key_${randomBytes(9).toString('base64url')}`, hash: hashKey(key) } };
}

/**
 * Gives the developer of this machine a key that may call everything in `environment`. Only its hash is stored, so it
 * cannot be shown again: each start replaces the one that the start before had made. Other keys are left alone.
 *
 * For a sidecar in the development environment that only this machine can reach; the caller sees to that.
 * Throws KeyFileError when the file cannot be used.
 */
export async function renewDevelopmentKey(file: string, environment: string, now = new Date()): Promise<string> {
  const { key, stored } = createKey('ra-dev-');
  const before = await readKeyFile(file);
  await writeKeyFile(file, {
    ...before,
    keys: [
      ...before.keys.filter(({ development }) => !development),
      {
        ...stored,
        account: DEVELOPMENT_ACCOUNT,
        created: now.toISOString(),
        weight: 4,
        entitlements: { [environment]: { models: 'all' } },
        development: true,
      },
    ],
  });
  return key;
}
