import { VISION_VERSION, type FromVision } from '../../engine/protocol/vision-messages.js';
import { isCount, isFields, isPositive, type Fields } from '../lib/wire-fields.js';

/** Parts of one image: a projector that cuts it into tiles makes a few for each of some dozens. */
export const MOST_PARTS = 4096;

/** Tokens of text that a projector puts around one image's embeddings: a few for each part. */
export const MOST_TEXT_TOKENS = 65_536;

/** Of one image's embeddings: each part is sent on to its engine in one frame, which has 512 MiB in all. */
export const MOST_EMBEDDING_BYTES = 511 * 2 ** 20;

/** Of a reason, UTF-16 units: it may contain a path. */
const MOST_REASON = 8192;

/** Hexadecimal digits of a SHA-256. */
const MOST_VERSION = 64;

/**
 * Checks one message of a vision process, which has parsed callers' files and may be under the control of one: its version, its
 * kind, every field. Returns the message itself, not a copy; undefined: it is none of the protocol. Whether its tokens are in the
 * vocabulary and its embeddings as wide as the model, the engine checks, which fails that job alone.
 */
export function readVisionMessage(raw: unknown): FromVision | undefined {
  return isFields(raw) && raw['v'] === VISION_VERSION && isMessage(raw) ? raw : undefined;
}

function isMessage(raw: Fields): raw is Fields & FromVision {
  switch (raw['kind']) {
    case 'ready':
      return isFacts(raw['facts']);
    case 'unable':
      return isText(raw['reason'], MOST_REASON) && isBoolean(raw['mayMend']);
    case 'layout':
      return isCount(raw['id']) && isLayout(raw['parts']);
    case 'encoded':
      return isCount(raw['id']) && isEmbeddings(raw['embeddings']);
    case 'refused':
      return isCount(raw['id']) && (raw['why'] === 'undecodable' || raw['why'] === 'failed');
    case 'heartbeat':
      return true;
    default:
      return false;
  }
}

function isFacts(raw: unknown): boolean {
  if (!isFields(raw) || !isFields(raw['confinement'])) return false;
  const { filtered, bounded, ownUser } = raw['confinement'];
  return isText(raw['projectorVersion'], MOST_VERSION) && [raw['whole'], filtered, bounded, ownUser].every(isBoolean);
}

function isLayout(raw: unknown): boolean {
  const parts = listOf(raw);
  if (!parts) return false;
  let text = 0;
  for (const part of parts) {
    if (!isFields(part)) return false;
    if (part['kind'] === 'tokens' && part['tokens'] instanceof Uint32Array) text += part['tokens'].length;
    else if (!isPlaces(part)) return false;
  }
  return text <= MOST_TEXT_TOKENS;
}

/** As the engine requires it of an image in a prompt (engine/scheduler/job-check.ts). */
function isPlaces({ kind, count, positions, columns }: Fields): boolean {
  return (
    kind === 'embeddings' &&
    isPositive(count) &&
    isPositive(positions) &&
    isCount(columns) &&
    positions <= count &&
    columns <= count &&
    (columns > 0 || positions === count)
  );
}

function isEmbeddings(raw: unknown): boolean {
  const all = listOf(raw);
  if (!all) return false;
  let bytes = 0;
  for (const values of all) {
    if (!(values instanceof Float32Array)) return false;
    bytes += values.byteLength;
  }
  return bytes <= MOST_EMBEDDING_BYTES;
}

function listOf(raw: unknown): readonly unknown[] | undefined {
  return Array.isArray(raw) && raw.length <= MOST_PARTS ? raw : undefined;
}

function isText(raw: unknown, most: number): boolean {
  return typeof raw === 'string' && raw.length <= most;
}

function isBoolean(raw: unknown): boolean {
  return typeof raw === 'boolean';
}
