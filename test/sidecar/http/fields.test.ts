import t from 'tap';
import { contractError } from '../../../sidecar/domain/errors.js';
import type { RequestHead } from '../../../sidecar/http/exchange.js';
import { Cors, errorFields, limitFields, responseFields, statusLine } from '../../../sidecar/http/fields.js';

t.test('status lines', async (t) => {
  t.equal(statusLine(200), '200 OK');
  t.equal(statusLine(499), '499 Client Closed Request');
});

t.test('the headers of errors', async (t) => {
  const wait = (retryAfterMs: number) => errorFields(contractError('capacity_exceeded', 'a', { retryAfterMs }));
  t.same(wait(1000), { 'Retry-After': '1', 'retry-after-ms': '1000' });
  t.same(wait(1000.5), { 'Retry-After': '2', 'retry-after-ms': '1001' });
  t.same(wait(1), { 'Retry-After': '1', 'retry-after-ms': '1' });
  t.same(wait(-5), { 'Retry-After': '0', 'retry-after-ms': '0' });
  t.same(wait(60_000), { 'Retry-After': '60', 'retry-after-ms': '60000' });
  const hours = contractError('quota_exceeded', 'a', { retryAfterMs: 60_001 });
  t.same(errorFields(hours), { 'Retry-After': '61', 'retry-after-ms': '60001', 'x-should-retry': 'false' });
  t.same(errorFields(contractError('not_found', 'a')), { 'x-should-retry': 'false' });
  t.same(errorFields(contractError('internal', 'a')), {});
});

t.test('what is left of limits', async (t) => {
  const resetsIn = (resetMs: number) =>
    limitFields({ requests: { limit: 3, remaining: 2, resetMs } })['x-ratelimit-reset-requests'];
  t.strictSame([0, 1, 59_999, 60_000, 89_001, 86_400_000].map(resetsIn), [
    '0s',
    '1s',
    '1m0s',
    '1m0s',
    '1m30s',
    '24h0m0s',
  ]);
  t.strictSame(limitFields({}), {}, 'no limit');
  t.strictSame(limitFields({ tokens: { limit: 10, remaining: 0, resetMs: 5000 } }), {
    'x-ratelimit-limit-tokens': '10',
    'x-ratelimit-remaining-tokens': '0',
    'x-ratelimit-reset-tokens': '5s',
  });
});

t.test('the fields of a response', async (t) => {
  const given = responseFields('application/json', { 'content-TYPE': 'a/b', 'Retry-After': '1' }, 'id');
  t.same(given.fields, [
    ['content-TYPE', 'a/b'],
    ['Retry-After', '1'],
    ['x-request-id', 'id'],
  ]);
  t.same([...given.names], ['content-type', 'retry-after', 'x-request-id']);
  t.same(responseFields('a/b', {}, 'id').fields[0], ['Content-Type', 'a/b']);
  for (const value of ['a\r\nb: c', 'a\nb', 'a\0'])
    t.throws(() => responseFields(undefined, { a: value }, 'id'), RangeError);
});

function head(fields: Record<string, string>): RequestHead {
  return {
    method: 'OPTIONS',
    path: '/',
    query: '',
    requestId: 'a',
    scheme: 'http',
    address: '',
    route: undefined,
    header: (name) => fields[name],
  };
}

const ID = new Set(['x-request-id']);
const READABLE = ['Access-Control-Expose-Headers', 'x-request-id'] as const;

t.test('no origin is allowed by default, and the exposed headers are always named', async (t) => {
  const cors = new Cors([]);
  const asking = head({ origin: 'https://a.example', 'access-control-request-method': 'POST' });
  t.same(cors.fields(asking, ID), [READABLE]);
  t.same(cors.preflight(asking, 'POST'), {});
  t.same(cors.fields(head({}), new Set(['x-request-id', 'server-timing', 'retry-after', 'x-other'])), [
    ['Access-Control-Expose-Headers', 'x-request-id, Retry-After, Server-Timing'],
  ]);
  const limited = new Set(['anthropic-ratelimit-tokens-reset', 'x-ratelimit-remaining-requests', 'x-ratelimit-other']);
  t.same(cors.fields(head({}), limited), [
    ['Access-Control-Expose-Headers', 'x-ratelimit-remaining-requests, anthropic-ratelimit-tokens-reset'],
  ]);
});

t.test('origins are compared as a whole', async (t) => {
  const cors = new Cors(['https://a.example']);
  const vary = ['Vary', 'Origin'] as const;
  t.same(cors.fields(head({ origin: 'https://a.example' }), ID), [
    READABLE,
    ['Access-Control-Allow-Origin', 'https://a.example'],
    ['Timing-Allow-Origin', 'https://a.example'],
    vary,
  ]);
  for (const origin of ['https://a.example.evil', 'http://a.example', 'https://A.example', 'null', ''])
    t.same(cors.fields(head({ origin }), ID), [READABLE, vary], origin);
  t.same(cors.fields(head({}), ID), [READABLE, vary]);
});

t.test('all origins', async (t) => {
  const cors = new Cors(['*']);
  t.same(cors.fields(head({ origin: 'https://a.example' }), ID), [
    READABLE,
    ['Access-Control-Allow-Origin', '*'],
    ['Timing-Allow-Origin', '*'],
  ]);
  t.same(cors.fields(head({}), ID), [READABLE]);
});

t.test('a preflight names those of the requested headers that may be sent', async (t) => {
  const cors = new Cors(['*']);
  const ask = (asked: string) =>
    cors.preflight(
      head({
        origin: 'https://a.example',
        'access-control-request-method': 'POST',
        'access-control-request-headers': asked,
      }),
      'POST, OPTIONS',
    )['Access-Control-Allow-Headers'];
  t.equal(
    ask('Authorization, content-type,idempotency-key,x-request-id'),
    'authorization, content-type, idempotency-key, x-request-id',
  );
  const byClient = 'authorization,content-type,user-agent,x-stainless-arch,x-stainless-runtime-version';
  t.equal(ask(byClient), byClient.replaceAll(',', ', '), 'all that OpenAI’s client sends from Firefox');
  t.equal(ask('x-stainless-retry-count,x-stainless-,x-stainless-a:b,cookie,x-ra-account'), 'x-stainless-retry-count');
  t.equal(ask('cookie'), undefined);
  t.same(cors.preflight(head({ origin: 'https://a.example' }), 'POST'), {}, 'an OPTIONS request that is no preflight');
});
