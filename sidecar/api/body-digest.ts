import { createHash } from 'node:crypto';

/** Bytes that are hashed at each end of a body; a shorter body is hashed whole. */
const END_BYTES = 32 * 1024;

/** Equal for requests of one route with the same body. Of a long body only its ends and its length are compared. */
export function bodyDigest(route: string, body: Uint8Array): string {
  const hash = createHash('sha256').update(`${route} ${body.byteLength}\0`);
  if (body.byteLength <= 2 * END_BYTES) hash.update(body);
  else hash.update(body.subarray(0, END_BYTES)).update(body.subarray(-END_BYTES));
  return hash.digest('base64url');
}
