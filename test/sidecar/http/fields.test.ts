import t from 'tap';
import { contractError } from '../../../sidecar/domain/errors.js';
import { errorFields, responseFields, statusLine } from '../../../sidecar/http/fields.js';

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
