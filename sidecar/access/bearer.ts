import type { Credentials } from './identity.js';

/** `Bearer`, one or more spaces, and visible ASCII. */
const BEARER = /^bearer +([\x21-\x7e]+)$/i;

/** Keys have some 50 characters; the bound keeps hashing cheap. */
const MAX_KEY = 256;

/** The key in the Authorization header; undefined: none, malformed or longer than `maxCharacters`. */
export function bearerOf(credentials: Credentials, maxCharacters = MAX_KEY): string | undefined {
  const key = BEARER.exec(credentials.header('authorization') ?? '')?.[1];
  return key !== undefined && key.length <= maxCharacters ? key : undefined;
}
