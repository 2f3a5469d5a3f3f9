import {
  EVICTIONS,
  PROTOCOL_VERSION,
  type CacheCounts,
  type FromEngine,
  type HeldPrefix,
  type HeldTokens,
} from '../../engine/protocol/messages.js';
import type { EngineFacts, GpuBackend } from '../../engine/protocol/setup.js';
import type { Output } from '../../engine/protocol/jobs.js';
import type { SharedState } from '../../engine/protocol/cache-key.js';
import { isCount, isFields, isPositive, type Fields } from '../lib/child-process.js';

/** A protocol violation of an engine, as a short constant for logs; never data that it sent. */
export interface Violation {
  readonly violation: string;
}

/**
 * Checks the shape of one message from an engine: version, kind, every field. Returns the message itself, not a copy.
 * The mux checks whether it is allowed now.
 */
export function readMessage(raw: unknown): FromEngine | Violation {
  if (!isFields(raw)) return { violation: 'not-a-message' };
  if (raw['v'] !== PROTOCOL_VERSION) return { violation: 'version' };
  return isMessage(raw) ? raw : { violation: 'malformed' };
}

const BACKENDS: ReadonlySet<unknown> = new Set<GpuBackend | false>(['cuda', 'vulkan', 'metal', false]);

function isMessage(raw: Fields): raw is Fields & FromEngine {
  switch (raw['kind']) {
    case 'ready':
      return isFacts(raw['facts']);
    case 'opens':
      return raw['key'] === undefined || typeof raw['key'] === 'string';
    case 'unable':
      return typeof raw['reason'] === 'string' && typeof raw['mayMend'] === 'boolean' && isFlag(raw['noStep']);
    case 'tries':
      return BACKENDS.has(raw['backend']);
    case 'serverProblem':
      return typeof raw['reason'] === 'string';
    case 'step':
      // Copied, since `every` skips the holes of a sparse array.
      return (
        isCount(raw['step']) &&
        Array.isArray(raw['outputs']) &&
        Array.from<unknown>(raw['outputs']).every(isOutput) &&
        Array.isArray(raw['held']) &&
        Array.from<unknown>(raw['held']).every(isHeld)
      );
    case 'capacity':
      return isPositive(raw['seats']) && isCount(raw['unconfirmed']);
    case 'heartbeat':
      return isCount(raw['step']) && isCount(raw['live']) && isHeldTokens(raw['tokens']) && isCacheCounts(raw['cache']);
    default:
      return false;
  }
}

function isOutput(raw: unknown): raw is Output {
  if (!isFields(raw) || !isCount(raw['id'])) return false;
  switch (raw['kind']) {
    case 'started':
      return isCount(raw['cachedTokens']);
    case 'needsImage':
      return isCount(raw['image']);
    case 'needsTokens':
      return isCount(raw['choice']) && isCount(raw['tokens']);
    case 'piece':
      return (
        isCount(raw['choice']) && isChannel(raw['channel']) && typeof raw['text'] === 'string' && isCount(raw['tokens'])
      );
    case 'call':
      return (
        isCount(raw['choice']) &&
        isCount(raw['index']) &&
        (raw['name'] === undefined || typeof raw['name'] === 'string') &&
        typeof raw['arguments'] === 'string' &&
        isCount(raw['tokens'])
      );
    case 'finished':
      return (
        isCount(raw['choice']) &&
        isFinishReason(raw['reason']) &&
        isMatchedStop(raw['matchedStop']) &&
        isCount(raw['completionTokens']) &&
        isCount(raw['reasoningTokens']) &&
        (raw['draftedTokens'] === undefined || isCount(raw['draftedTokens'])) &&
        (raw['acceptedTokens'] === undefined || isCount(raw['acceptedTokens']))
      );
    case 'answer':
      return (
        isCount(raw['question']) &&
        raw['probabilities'] instanceof Float64Array &&
        raw['probabilities'].every(isShare) &&
        isShare(raw['labelMass'])
      );
    case 'vectors':
      return (
        isPositive(raw['count']) &&
        raw['values'] instanceof Float32Array &&
        raw['values'].length > 0 &&
        raw['values'].length % raw['count'] === 0 &&
        raw['values'].every(Number.isFinite)
      );
    case 'cached':
      return isCount(raw['tokens']);
    case 'seatFreed':
    case 'done':
    case 'returned':
    case 'cancelled':
      return true;
    case 'failed':
      return typeof raw['reason'] === 'string';
    default:
      return false;
  }
}

function isHeld(raw: unknown): raw is HeldPrefix {
  return (
    isFields(raw) &&
    isCount(raw['sequence']) &&
    raw['hashes'] instanceof Uint32Array &&
    (raw['state'] === undefined || isSharedState(raw['state']))
  );
}

function isSharedState(raw: unknown): raw is SharedState {
  if (!isFields(raw)) return false;
  return [raw['file'], raw['inode'], raw['bytes'], raw['tokens'], raw['ends'], raw['changedAt']].every(isCount);
}

function isHeldTokens(raw: unknown): raw is HeldTokens {
  return isFields(raw) && isCount(raw['running']) && isCount(raw['kept']);
}

function isCacheCounts(raw: unknown): raw is CacheCounts {
  if (!isFields(raw) || !isFields(raw['evictions'])) return false;
  const { evictions } = raw;
  const sums = [raw['hits'], raw['restoredTokens'], raw['bytes'], raw['entries']];
  return sums.every(isCount) && EVICTIONS.every((why) => isCount(evictions[why]));
}

function isFacts(raw: unknown): raw is EngineFacts {
  return (
    isFields(raw) &&
    typeof raw['model'] === 'string' &&
    isPositive(raw['seats']) &&
    isPositive(raw['contextPerSeat']) &&
    isPositive(raw['vocabulary']) &&
    typeof raw['weightVersion'] === 'string' &&
    (raw['promptVersion'] === undefined || typeof raw['promptVersion'] === 'string') &&
    typeof raw['labelsVerified'] === 'boolean' &&
    isCount(raw['threads']) &&
    (typeof raw['gpu'] === 'string' || raw['gpu'] === false) &&
    (raw['repackedBytes'] === undefined || isCount(raw['repackedBytes'])) &&
    (raw['prefixCacheBytes'] === undefined || isCount(raw['prefixCacheBytes'])) &&
    (raw['states'] === undefined || typeof raw['states'] === 'string') &&
    isFlag(raw['confirmsCancels']) &&
    (raw['width'] === undefined || isPositive(raw['width'])) &&
    (raw['scores'] === undefined || raw['scores'] === 'logit' || raw['scores'] === 'probability') &&
    (raw['warnings'] === undefined || isTexts(raw['warnings']))
  );
}

function isTexts(raw: unknown): boolean {
  return Array.isArray(raw) && Array.from<unknown>(raw).every((text) => typeof text === 'string');
}

/** Set, or absent. */
function isFlag(raw: unknown): boolean {
  return raw === undefined || raw === true;
}

/** Rounding may make a sum slightly larger than 1. */
function isShare(raw: unknown): raw is number {
  return typeof raw === 'number' && raw >= 0 && raw <= 1 + 1e-6;
}

function isChannel(raw: unknown): boolean {
  return raw === 'content' || raw === 'reasoning';
}

function isFinishReason(raw: unknown): boolean {
  return raw === 'stop' || raw === 'length' || raw === 'tool_calls';
}

function isMatchedStop(raw: unknown): boolean {
  return raw === undefined || typeof raw === 'string' || isCount(raw);
}
