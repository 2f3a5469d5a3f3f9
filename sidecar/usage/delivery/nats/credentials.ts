import { FileProblem } from '../../../lib/checked-file.js';
import type { NatsConfig } from '../../../config/delivery-types.js';
import { readLogin, readNamed } from '../login-file.js';

/** The file's name in messages. */
const WHAT = 'delivery.nats.secretFile';

/** Credentials for a NATS server, kept for one connection. */
export type NatsCredentials =
  | { readonly kind: 'none' }
  | { readonly kind: 'password'; readonly user: string; readonly password: string }
  | { readonly kind: 'token'; readonly token: string }
  /** The seed of a user's nkey. */
  | { readonly kind: 'nkey'; readonly seed: string }
  /** A creds file: a user's JWT and the seed of its nkey. */
  | { readonly kind: 'creds'; readonly creds: string };

/** A user's seed: `SU`, then 32 bytes and a checksum in base 32. */
const SEED = /^SU[A-Z2-7]{56}$/;
const TOKEN = /^[\x21-\x7e]+$/;
const CREDS = /BEGIN NATS USER JWT[^]+BEGIN USER NKEY SEED/;

/** The credentials in the configured file. Rejects with a {@link FileProblem}, which never quotes it. */
export async function readNatsCredentials({
  auth,
  secretFile,
}: Pick<NatsConfig, 'auth' | 'secretFile'>): Promise<NatsCredentials> {
  if (auth === 'none' || secretFile === undefined) return { kind: 'none' };
  if (auth === 'password') return { kind: 'password', ...(await readLogin(WHAT, secretFile)) };
  const text = (await readNamed(WHAT, secretFile)).trim();
  const demand = (holds: boolean, what: string): void => {
    if (!holds) throw new FileProblem(WHAT, `must contain ${what}`, secretFile);
  };
  if (auth === 'token') {
    demand(TOKEN.test(text), 'one token and nothing else');
    return { kind: 'token', token: text };
  }
  if (auth === 'nkey') {
    demand(SEED.test(text), 'the seed of a user’s nkey and nothing else');
    return { kind: 'nkey', seed: text };
  }
  demand(CREDS.test(text), 'a user’s JWT and seed, as NATS’ own tools write them');
  return { kind: 'creds', creds: `${text}\n` };
}
