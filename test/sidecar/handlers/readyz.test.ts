import t from 'tap';
import { CreditLedger } from '../../../sidecar/access/credit.js';
import { readyz } from '../../../sidecar/handlers/ops.js';
import type { Services } from '../../../sidecar/handlers/services.js';
import type { Exchange, Reply } from '../../../sidecar/http/exchange.js';
import { FakeSpool } from '../../support/in-process.js';

const unused = (): never => {
  throw new Error('not to be called here');
};

function reasons(credit: Services['credit']): unknown {
  const replies: Reply[] = [];
  const exchange: Exchange = {
    head: { method: 'GET', path: '/readyz', requestId: 'r', address: '', header: () => undefined },
    gone: new AbortController().signal,
    body: unused,
    reply: (reply) => void replies.push(reply),
    fail: unused,
    stream: unused,
  };
  readyz(exchange, { draining: () => false, spool: new FakeSpool(), models: new Map(), credit });
  return (JSON.parse(String(replies[0]?.body)) as { reasons: unknown }).reasons;
}

t.test('a sidecar that does not know its balances yet is not ready', async (t) => {
  const ledger = new CreditLedger(new Map());
  t.strictSame(reasons(ledger), ['credit_gate_unavailable', 'cold']);
  ledger.open(new Map());
  t.strictSame(reasons(ledger), ['cold']);
  t.strictSame(reasons(undefined), ['cold'], 'where no credit is checked there is nothing to know');
});
