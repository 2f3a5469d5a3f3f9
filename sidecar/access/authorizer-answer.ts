/**
 * Validates an HTTP authorizer's answer, which docs/authorizer.md describes. The schema is closed, so that no
 * restriction is overlooked.
 */
import { closed } from '../contracts/common-schema.js';
import { compile } from '../contracts/validator.js';
import type { ModelRoute } from '../contracts/requests.js';
import type { ErrorCode } from '../domain/errors.js';
import { CLASS_WEIGHTS, SERVICE_CLASSES, type ServiceClass } from '../domain/service-class.js';
import type { Caller, Denied } from './identity.js';
import { limitsOf, limitsSchema, oneWay, type StoredLimits } from './key-file-schema.js';
import { MAX_MODELS, MODEL_ID, NAME } from './names.js';

/** Codes of a denial: those of the catalogue with 401, 402, 403 and 429 that are about the caller. */
const DENIALS = [
  'invalid_api_key',
  'expired_api_key',
  'revoked_api_key',
  'model_not_entitled',
  'not_in_cohort',
  'account_frozen',
  'unattributed_key',
  'insufficient_credit',
  'user_rate_limited',
  'quota_exceeded',
] as const satisfies readonly ErrorCode[];

/** The longest wait in a denial, ms: a day, after which any quota is renewed. */
const MAX_RETRY_MS = 86_400_000;

interface NamedCaller {
  readonly account: string;
  readonly keyId: string;
  readonly models: 'all' | readonly string[];
  readonly routes?: readonly ModelRoute[];
  readonly class?: ServiceClass;
  readonly limits?: StoredLimits;
  readonly cohort?: string;
  readonly tokensPerDay?: number;
}

interface Answer {
  readonly caller?: NamedCaller;
  readonly denied?: { readonly code: (typeof DENIALS)[number]; readonly retryAfterMs?: number };
}

const name = { type: 'string', pattern: NAME };
const count = { type: 'integer', minimum: 1, maximum: Number.MAX_SAFE_INTEGER };

const caller = closed(['account', 'keyId', 'models'], {
  account: name,
  keyId: name,
  models: {
    anyOf: [{ const: 'all' }, { type: 'array', maxItems: MAX_MODELS, items: { type: 'string', pattern: MODEL_ID } }],
  },
  routes: { type: 'array', maxItems: 3, items: { enum: ['chat', 'decisions', 'systemone'] } },
  class: { enum: SERVICE_CLASSES },
  limits: limitsSchema,
  cohort: name,
  tokensPerDay: count,
});

const denied = closed(['code'], {
  code: { enum: DENIALS },
  retryAfterMs: { type: 'integer', minimum: 1, maximum: MAX_RETRY_MS },
});

const check = compile<Answer>({
  ...closed([], { caller, denied }),
  minProperties: 1,
  maxProperties: 1,
});

/** The caller or the denial; undefined: `value` is not a valid answer. `environment`: the requested one. */
export function parseAnswer(value: unknown, environment: string): Caller | Denied | undefined {
  const checked = check(value);
  if (!checked.ok) return undefined;
  const { caller: found, denied: denial } = checked.value;
  if (denial) return { kind: 'denied', ...denial };
  if (!found) return undefined;
  const { account, keyId, models, routes, limits, cohort, tokensPerDay } = found;
  if (limits && !oneWay(limits)) return undefined;
  return Object.freeze({
    kind: 'caller',
    account,
    keyId,
    environment,
    models: models === 'all' ? models : new Set(models),
    ...(routes && { routes: new Set(routes) }),
    ...(limits && { limits: limitsOf(limits) }),
    ...(cohort !== undefined && { cohort }),
    ...(tokensPerDay !== undefined && { tokensPerDay }),
    weight: CLASS_WEIGHTS[found.class ?? 'standard'],
  });
}
