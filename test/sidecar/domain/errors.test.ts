import t from 'tap';
import {
  CATALOGUE,
  type CatalogueRow,
  type ErrorCode,
  contractError,
  errorBody,
} from '../../../sidecar/domain/errors.js';

/**
 * docs/errors.md: codes, statuses, type. Repeated here, so that the catalogue cannot change unnoticed.
 */
const CONTRACT: readonly (readonly [codes: string, statuses: readonly number[], type: string])[] = [
  ['bad_request', [400, 405, 415, 426], 'invalid_request_error'],
  ['context_length_exceeded', [400], 'invalid_request_error'],
  ['unsupported_endpoint', [400], 'invalid_request_error'],
  ['not_found', [404], 'invalid_request_error'],
  ['payload_too_large', [413], 'invalid_request_error'],
  ['unprocessable', [422, 412], 'invalid_request_error'],
  ['proxy_retired', [410], 'invalid_request_error'],
  ['invalid_api_key, expired_api_key, revoked_api_key', [401], 'authentication_error'],
  ['model_not_entitled, not_in_cohort, account_frozen, unattributed_key', [403], 'permission_error'],
  ['insufficient_credit', [402], 'quota'],
  ['user_rate_limited', [429], 'rate_limit_error'],
  ['quota_exceeded', [429], 'quota'],
  ['capacity_exceeded', [429], 'capacity'],
  ['request_cancelled', [499], 'server_error'],
  ['idempotency_key_reused', [409, 422], 'invalid_request_error'],
  ['internal', [500], 'server_error'],
  ['bad_gateway, upstream_contract_violation', [502], 'server_error'],
  [
    'cold, draining, spool_unhealthy, gateway_unavailable, control_plane_overloaded, credit_gate_unavailable',
    [503],
    'server_error',
  ],
  ['timeout', [504], 'timeout'],
];

const rows = Object.entries(CATALOGUE) as [ErrorCode, CatalogueRow][];

t.test('the catalogue equals the contract’s table', async (t) => {
  const expected = CONTRACT.flatMap(([codes, statuses, type]) =>
    codes.split(', ').map((code): [string, unknown] => [code, { statuses, type }]),
  );
  const found = rows.map(([code, { status, also = [], type }]) => [code, { statuses: [status, ...also], type }]);
  t.strictSame(Object.fromEntries(found), Object.fromEntries(expected));
  t.equal(rows.length, 30);
});

t.test('a retry can succeed after errors of the server or the moment, and after none of the request', async (t) => {
  for (const [code, { status, retryable }] of rows) t.equal(retryable, status === 429 || status >= 499, code);
});

t.test('every row has a meaning and what to do', async (t) => {
  for (const [code, { meaning, advice }] of rows) {
    t.match(meaning, /^[A-Z][^|\n]{10,}\.$/, code);
    t.match(advice, /^[A-Z][^|\n]{10,}\.$/, code);
  }
});

t.test('an error has its row’s values', async (t) => {
  for (const [code, { status, also = [], type, retryable }] of rows) {
    for (const each of [status, ...also]) {
      const error = contractError(code, 'Why.', { status: each });
      t.match(error, { code, status: each, type, retryable, param: null });
      t.equal(error.retryAfterMs, [429, 503, 504].includes(each) ? 1000 : undefined);
      const message = error.retryAfterMs === undefined ? 'Why.' : 'Why. Please try again in 1s.';
      t.strictSame(JSON.parse(errorBody(error)), { error: { message, type, code, param: null } });
    }
    t.throws(() => contractError(code, 'Why.', { status: 418 }), RangeError);
  }
  t.equal(contractError('cold', 'x', { retryAfterMs: 7 }).retryAfterMs, 7);
  t.equal(contractError('bad_request', 'x', { retryAfterMs: 7 }).retryAfterMs, undefined);
  t.equal(contractError('bad_request', 'x', { param: 'model' }).param, 'model');
  t.equal(contractError('bad_request', 'x'.repeat(3000)).message.length, 2048);
});
