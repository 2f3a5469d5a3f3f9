import t from 'tap';
import { snapshot } from '../../../sidecar/http/head.js';
import type { Snapshot } from '../../../sidecar/http/head.js';

function take(...fields: [name: string, value: string][]): Snapshot {
  return snapshot(
    {
      getCaseSensitiveMethod: () => 'POST',
      getUrl: () => '/v1/models',
      getQuery: () => '',
      forEach: (each) => {
        for (const [name, value] of fields) each(name, value);
      },
    },
    { address: '192.0.2.7', scheme: 'https', route: '/v1/models' },
  );
}

t.test('the fields of a head', async (t) => {
  const { head, bodyLength, refusal } = take(['content-length', '12'], ['accept', 'a'], ['accept', 'b'], ['x', '']);
  t.match(head, { method: 'POST', path: '/v1/models', address: '192.0.2.7', scheme: 'https' });
  t.equal(head.header('accept'), 'a, b');
  t.equal(head.header('x'), '');
  t.equal(head.header('toString'), undefined);
  t.equal(bodyLength, 12);
  t.equal(refusal, undefined);
});

t.test('how its body is framed', async (t) => {
  t.equal(take().bodyLength, 0);
  t.equal(take(['content-length', '0']).bodyLength, 0);
  t.equal(take(['content-length', '007']).bodyLength, 7);
  t.equal(take(['transfer-encoding', 'Chunked']).bodyLength, 'chunked');
});

t.test('what is refused', async (t) => {
  const cases: [string, ...[string, string][]][] = [
    ['content-length is given twice', ['content-length', '1'], ['content-length', '1']],
    ['authorization is given twice', ['authorization', 'Bearer a'], ['authorization', 'Bearer b']],
    ['x-ra-\\* is given twice', ['x-ra-secret-name', 'a'], ['x-ra-secret-name', 'b']],
    ['Content-Length is not a number', ['content-length', '']],
    ['Content-Length is not a number', ['content-length', '0x10']],
    ['Content-Length is not a number', ['content-length', '9'.repeat(16)]],
    ['Transfer-Encoding', ['transfer-encoding', 'gzip']],
    ['Transfer-Encoding', ['transfer-encoding', '']],
    ['exclude each other', ['transfer-encoding', 'chunked'], ['content-length', '1']],
  ];
  for (const [why, ...fields] of cases) {
    const { refusal, bodyLength } = take(...fields);
    t.match(refusal, new RegExp(why));
    t.equal(bodyLength, 0);
  }
});
