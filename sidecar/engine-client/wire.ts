import {
  EVICTIONS,
  PROTOCOL_VERSION,
  type CacheCounts,
  type FromEngine,
  type HeldPrefix,
  type HeldTokens,
} from '../../engine/protocol/messages.js';
import type { EngineFacts } from '../../engine/protocol/setup.js';
import type { Output } from '../../engine/protocol/jobs.js';
import type { SharedState } from '../../engine/protocol/cache-key.js';
import {
  among,
  fields,
  isBoolean,
  isCount,
  isFields,
  isPositive,
  isText,
  listOf,
  oneOf,
  optional,
  type Test,
} from '../lib/message-fields.js';

/** A protocol violation of an engine, as a short constant for logs; never data that it sent. */
export interface Violation {
  readonly violation: string;
}

/**
 * Checks the shape of an engine's message: version, kind, every field. Returns the message itself, not a copy. Whether the message is
 * allowed at this moment is checked by the mux.
 */
export function readMessage(raw: unknown): FromEngine | Violation {
  if (!isFields(raw)) return { violation: 'not-a-message' };
  if (raw['v'] !== PROTOCOL_VERSION) return { violation: 'version' };
  return MESSAGE(raw) ? (raw as unknown as FromEngine) : { violation: 'malformed' };
}

/** A flag of the protocol is `true` or absent. */
const isFlag = among(undefined, true);
/** Rounding may make a sum slightly larger than 1. */
const isShare: Test = (raw) => typeof raw === 'number' && raw >= 0 && raw <= 1 + 1e-6;

type WithoutId<O> = O extends Output ? Omit<O, 'id'> : never;

const OUTPUT_FIELDS = oneOf<WithoutId<Output>>({
  started: { cachedTokens: isCount },
  needsImage: { image: isCount },
  needsTokens: { choice: isCount, tokens: isCount },
  piece: { choice: isCount, channel: among('content', 'reasoning'), text: isText, tokens: isCount },
  call: { choice: isCount, index: isCount, name: optional(isText), arguments: isText, tokens: isCount },
  finished: {
    choice: isCount,
    reason: among('stop', 'length', 'tool_calls'),
    matchedStop: optional((raw) => isText(raw) || isCount(raw)),
    completionTokens: isCount,
    reasoningTokens: isCount,
    draftedTokens: optional(isCount),
    acceptedTokens: optional(isCount),
  },
  answer: {
    question: isCount,
    probabilities: (raw) => raw instanceof Float64Array && raw.every(isShare),
    labelMass: isShare,
  },
  vectors: {
    count: isPositive,
    values: (raw) => raw instanceof Float32Array && raw.length > 0 && raw.every(Number.isFinite),
  },
  cached: { tokens: isCount },
  seatFreed: {},
  done: {},
  returned: {},
  cancelled: {},
  failed: { reason: isText },
});

function isOutput(raw: unknown): boolean {
  if (!isFields(raw) || !isCount(raw['id']) || !OUTPUT_FIELDS(raw)) return false;
  return raw['kind'] !== 'vectors' || (raw['values'] as Float32Array).length % (raw['count'] as number) === 0;
}

const MESSAGE = oneOf<FromEngine>({
  ready: {
    facts: fields<EngineFacts>({
      seats: isPositive,
      contextPerSeat: isPositive,
      tokens: optional(isPositive),
      vocabulary: isPositive,
      weightVersion: isText,
      promptVersion: optional(isText),
      width: optional(isPositive),
      scores: among(undefined, 'logit', 'probability'),
      threads: isCount,
      gpu: (raw) => isText(raw) || raw === false,
      confirmsCancels: isFlag,
      repackedBytes: optional(isCount),
      prefixCacheBytes: optional(isCount),
      states: optional(isText),
      warnings: optional(listOf(isText)),
    }),
  },
  opens: { key: optional(isText) },
  unable: { reason: isText, mayMend: isBoolean, noStep: isFlag },
  tries: { backend: among('cuda', 'vulkan', 'metal', false) },
  serverProblem: { reason: isText },
  step: {
    step: isCount,
    outputs: listOf(isOutput),
    held: listOf(
      fields<HeldPrefix>({
        sequence: isCount,
        hashes: (raw) => raw instanceof Uint32Array,
        state: optional(
          fields<SharedState>({
            file: isCount,
            inode: isCount,
            bytes: isCount,
            tokens: isCount,
            ends: isCount,
            changedAt: isCount,
          }),
        ),
      }),
    ),
  },
  capacity: { seats: isPositive, unconfirmed: isCount },
  heartbeat: {
    step: isCount,
    live: isCount,
    tokens: fields<HeldTokens>({ running: isCount, kept: isCount }),
    cache: fields<CacheCounts>({
      hits: isCount,
      restoredTokens: isCount,
      bytes: isCount,
      entries: isCount,
      evictions: fields(Object.fromEntries(EVICTIONS.map((why) => [why, isCount]))),
    }),
  },
});
