import t from 'tap';
import { refusalOf } from '../../../bench/overload/refusal.js';
import type { RefusalReason } from '../../../sidecar/domain/refusal-reasons.js';
import { contractError } from '../../../sidecar/domain/errors.js';
import { refused } from '../../../sidecar/api/refusals.js';

/** As the sidecar writes it. */
function bodyOf(reason: RefusalReason): string {
  const { message, type, code, param } = refused({ reason, retryAfterMs: 1500 });
  return JSON.stringify({ error: { message, type, code, param } });
}

t.test('a refusal has its code, its Retry-After, and whether it came after a wait', async (t) => {
  const headers = { 'retry-after': '2', 'retry-after-ms': '1500' };
  const at = (timing: string): Record<string, string> => ({ ...headers, 'server-timing': timing });
  const reported = { code: 'capacity_exceeded', retryAfterMs: 1500 };
  t.strictSame(refusalOf(at('authorize;dur=0.1, ra-queue;dur=0, ra-admit;dur=0.4'), bodyOf('full')), {
    ...reported,
    came: 'at once',
  });
  t.strictSame(refusalOf(at('authorize;dur=0.1, ra-queue;dur=5000.2, ra-admit;dur=1'), bodyOf('wait')), {
    ...reported,
    came: 'after a wait',
  });
  t.match(refusalOf(at('ra-queue;dur=0.004, ra-admit;dur=1'), bodyOf('dropped')), { came: 'after a wait' });
  t.strictSame(refusalOf({ 'retry-after': '2' }, bodyOf('deadline')), {
    code: 'timeout',
    retryAfterMs: 2000,
    came: 'after a wait',
  });
});

t.test('a proxy without a queue refuses at once; other answers are not refusals', async (t) => {
  const page =
    '<html>\r\n<body>\r\n<center><h1>429 Too Many Requests</h1></center>\r\n<hr><center>nginx/1.22.1</center>\r\n';
  t.strictSame(refusalOf({}, page), { came: 'at once' });
  t.strictSame(refusalOf({}, page.replace('429 Too Many Requests', '504 Gateway Time-out')), { came: 'untold' });
  const { code, message } = contractError('draining', 'This server is shutting down.');
  t.strictSame(refusalOf({}, JSON.stringify({ error: { code, message } })), { code: 'draining', came: 'untold' });
  t.strictSame(refusalOf({}, 'null'), { came: 'untold' });
});
