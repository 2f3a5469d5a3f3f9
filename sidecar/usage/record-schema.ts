import { UTC_TIME } from '../contracts/common-schema.js';
import { compile } from '../contracts/validator.js';
import type { UsageRecord } from '../domain/usage-record.js';

const text = { type: 'string', maxLength: 1024 };
const tokens = { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER };

/**
 * Whether a value is a usage record. Unknown fields are accepted: a spool survives upgrades, and a newer sidecar's
 * records must not be damage for an older one.
 */
export const checkRecord = compile<UsageRecord>({
  type: 'object',
  required: [
    'id',
    'requestId',
    'kind',
    'at',
    'account',
    'keyId',
    'model',
    'route',
    'promptTokens',
    'cachedTokens',
    'completionTokens',
  ],
  properties: {
    id: { ...text, minLength: 1 },
    requestId: text,
    kind: { enum: ['open', 'progress', 'close'] },
    at: UTC_TIME,
    account: text,
    keyId: text,
    model: text,
    route: text,
    promptTokens: tokens,
    cachedTokens: tokens,
    completionTokens: tokens,
    price: {
      type: 'object',
      required: ['version', 'picodollars'],
      properties: { version: text, picodollars: { type: 'string', maxLength: 40, pattern: '^\\d+$' } },
    },
    outcome: { enum: ['done', 'cancelled', 'failed', 'timeout', 'refused'] },
    estimated: { const: true },
  },
});
