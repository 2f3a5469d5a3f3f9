import t from 'tap';
import { parseHeaders } from '../../../sidecar/app/otlp-export.js';

t.test('a header a line', async (t) => {
  const text = '# of the collector\nAuthorization: Basic dXNlcjpzZWNyZXQ=\r\n\n  X-Scope-OrgID:\ttenant-1  \n';
  t.strictSame(parseHeaders(text), { authorization: 'Basic dXNlcjpzZWNyZXQ=', 'x-scope-orgid': 'tenant-1' });
});

t.test('invalid headers are refused, and not quoted', async (t) => {
  for (const [text, problem] of [
    ['', 'must contain 1 to 16 headers'],
    ['# none\n', 'must contain 1 to 16 headers'],
    ['secret', 'line 1 is not a header that can be sent'],
    ['a: b\nse cret: x', 'line 2 is not a header that can be sent'],
    ['a: se\u0007cret', 'line 1 is not a header that can be sent'],
    ['a: gr\u00fcn', 'line 1 is not a header that can be sent'],
    ['Content-Type: secret', 'line 1 is not a header that can be sent'],
    ['host: secret', 'line 1 is not a header that can be sent'],
    [Array.from({ length: 17 }, (_, i) => `h${i}: v`).join('\n'), 'must contain 1 to 16 headers'],
  ] as const)
    t.equal(parseHeaders(text), problem);
});
