import t from 'tap';
import { Hedges } from '../../../sidecar/admission/hedges.js';
import { QueuedRequest } from '../../../sidecar/admission/queued-request.js';

const QUEUE = { ready: () => undefined, cancel: () => undefined };

function request(bodyDigest: string | undefined, enteredAt = 0, account = 'a'): QueuedRequest {
  const body = bodyDigest === undefined ? {} : { bodyDigest };
  const queued = new QueuedRequest(QUEUE, { account, weight: 4, bytes: 1, seatsWanted: 1, ...body }, 1);
  queued.enteredAt = enteredAt;
  return queued;
}

t.test('a caller that disconnects because a copy was answered shows no patience', async (t) => {
  const hedges = new Hedges();
  const [first, copy] = [request('x'), request('x', 10)];
  hedges.entered(first);
  hedges.entered(copy);
  t.notOk(hedges.mayEnd(copy, 400), 'no copy was answered yet');
  hedges.answered(first, 500);
  hedges.over(first);
  t.ok(hedges.mayEnd(copy, 600));
  t.notOk(hedges.mayEnd(copy, 5000), 'long after that it disconnects for itself');
});

t.test('only copies count: same account, same body, in flight', async (t) => {
  const hedges = new Hedges();
  const [first, otherBody, otherAccount, later, unknown] = [
    request('x'),
    request('y'),
    request('x', 0, 'b'),
    request('x', 700),
    request(undefined),
  ];
  for (const each of [first, otherBody, otherAccount, unknown]) hedges.entered(each);
  hedges.answered(first, 500);
  hedges.entered(later);
  t.notOk(hedges.mayEnd(otherBody, 600));
  t.notOk(hedges.mayEnd(otherAccount, 600));
  t.notOk(hedges.mayEnd(unknown, 600));
  t.notOk(hedges.mayEnd(later, 800), 'it came after that answer');
});

t.test('many equal requests are a load, not a hedge', async (t) => {
  const hedges = new Hedges();
  const all = Array.from({ length: 4 }, () => request('x'));
  for (const each of all) hedges.entered(each);
  hedges.answered(all[0] ?? request('x'), 500);
  t.notOk(hedges.mayEnd(all[1] ?? request('x'), 600));
});
