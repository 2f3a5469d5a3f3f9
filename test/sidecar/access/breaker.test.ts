import fc from 'fast-check';
import t from 'tap';
import { Breaker, type Permit, type Blocked } from '../../../sidecar/access/breaker.js';
import { FakeClock } from '../../support/fake-clock.js';

const OPTIONS = { failures: 3, openMs: 1000, trialMs: 100 };

function permit(breaker: Breaker): Permit {
  const entered = breaker.enter();
  if ('kind' in entered) throw new Error(`blocked for ${entered.retryAfterMs}`);
  return entered;
}

function blocked(breaker: Breaker): Pick<Blocked, 'why' | 'retryAfterMs'> | 'let in' {
  const entered = breaker.enter();
  return 'kind' in entered ? { why: entered.why, retryAfterMs: entered.retryAfterMs } : 'let in';
}

function blockedFor(breaker: Breaker): number {
  return breaker.blockedForMs;
}

t.test('it opens after consecutive failures, not after as many in all', async (t) => {
  const breaker = new Breaker(new FakeClock(), OPTIONS);
  for (const end of ['failed', 'failed', 'succeeded', 'failed', 'failed', 'succeeded'] as const) {
    permit(breaker)[end]('timeout');
  }
  t.equal(breaker.state, 'closed');
  for (let i = 0; i < 3; i += 1) permit(breaker).failed('timeout');
  t.equal(breaker.state, 'open');
});

t.test('consecutive failures of one cause count once, but a trial always counts', async (t) => {
  const clock = new FakeClock();
  const breaker = new Breaker(clock, OPTIONS);
  for (const cause of ['a', 'a', 'a', 'b', 'b']) permit(breaker).failed('timeout', cause);
  t.equal(breaker.state, 'closed');
  permit(breaker).failed('timeout', 'a');
  t.equal(breaker.state, 'open');
  clock.advance(1000);
  permit(breaker).failed('timeout', 'a');
  t.equal(breaker.state, 'open');
});

t.test('open, then one trial at a time, then closed or open again', async (t) => {
  const clock = new FakeClock();
  const reported: string[] = [];
  const breaker = new Breaker(clock, {
    ...OPTIONS,
    opened: (reason, forMs) => reported.push(`${reason} ${forMs}`),
    closed: () => reported.push('closed'),
  });
  for (let i = 0; i < 3; i += 1) permit(breaker).failed('timeout');
  t.same(blocked(breaker), { why: 'failing', retryAfterMs: 1000 });
  clock.advance(999.5);
  t.same(blocked(breaker), { why: 'failing', retryAfterMs: 1 }, 'the returned wait is never too short');
  clock.advance(0.5);
  t.equal(breaker.state, 'half-open');
  const trial = permit(breaker);
  t.same(blocked(breaker), { why: 'failing', retryAfterMs: 100 }, 'by then the trial is over');
  trial.failed('status 500');
  t.same(blocked(breaker), { why: 'failing', retryAfterMs: 1000 }, 'now one failure is enough');
  clock.advance(1000);
  permit(breaker).succeeded();
  t.equal(breaker.state, 'closed');
  t.equal(breaker.blockedForMs, 0);
  t.same(reported, ['timeout 1000', 'status 500 1000', 'closed']);
});

t.test('results of calls from before it opened are ignored, and each permit counts once', async (t) => {
  const clock = new FakeClock();
  const breaker = new Breaker(clock, OPTIONS);
  const early = permit(breaker);
  const twice = permit(breaker);
  for (let i = 0; i < 5; i += 1) twice.failed('timeout');
  t.equal(breaker.state, 'closed');
  for (let i = 0; i < 2; i += 1) permit(breaker).failed('timeout');
  t.equal(breaker.state, 'open');
  early.succeeded();
  t.equal(breaker.state, 'open');
  clock.advance(1000);
  permit(breaker).succeeded();
  for (let i = 0; i < 2; i += 1) permit(breaker).failed('timeout');
  t.equal(breaker.state, 'closed', 'old failures are forgotten');
});

t.test('a service that requests a pause is not called for as long as it requests', async (t) => {
  const clock = new FakeClock();
  const breaker = new Breaker(clock, OPTIONS);
  permit(breaker).overloaded(7000);
  t.same(blocked(breaker), { why: 'overloaded', retryAfterMs: 7000 });
  clock.advance(7000);
  permit(breaker).overloaded(2000);
  t.same(blocked(breaker), { why: 'overloaded', retryAfterMs: 2000 });
});

t.test('a trial that is never answered does not keep it open forever', async (t) => {
  const clock = new FakeClock();
  const breaker = new Breaker(clock, OPTIONS);
  for (let i = 0; i < 3; i += 1) permit(breaker).failed('timeout');
  clock.advance(1000);
  permit(breaker);
  clock.advance(100);
  permit(breaker).succeeded();
  t.equal(breaker.state, 'closed');
});

t.test('whatever happens, Retry-After is exact and only trials run while it is not closed', async (t) => {
  const event = fc.oneof(
    fc.record({ kind: fc.constantFrom('succeeded', 'failed', 'overloaded'), which: fc.nat(9) }),
    fc.record({ kind: fc.constant('ask'), which: fc.constant(0) }),
    fc.record({ kind: fc.constant('wait'), which: fc.integer({ min: 1, max: 700 }) }),
  );
  let openings = 0;
  fc.assert(
    fc.property(fc.array(event, { maxLength: 80, size: 'max' }), (events) => {
      const clock = new FakeClock();
      const breaker = new Breaker(clock, { ...OPTIONS, opened: () => (openings += 1) });
      const held: Permit[] = [];
      for (const { kind, which } of events) {
        if (kind === 'wait') clock.advance(which);
        else if (kind === 'ask') {
          const before = breaker.state;
          const entered = breaker.enter();
          if ('kind' in entered) {
            if (before === 'closed' || entered.retryAfterMs < 1 || entered.retryAfterMs > 1000) return false;
            // Exact: one ms earlier it is still open, and then it is not.
            clock.advance(entered.retryAfterMs - 1);
            if (blockedFor(breaker) !== 1) return false;
            clock.advance(1);
            if (blockedFor(breaker) !== 0) return false;
          } else {
            if (before === 'open') return false;
            held.push(entered);
            // A second one is refused while the first is the trial.
            if (before === 'half-open' && !('kind' in breaker.enter())) return false;
          }
        } else {
          const [one] = held.splice(which % Math.max(1, held.length), 1);
          if (kind === 'overloaded') one?.overloaded(500);
          else if (kind === 'failed') one?.failed('timeout');
          else one?.succeeded();
        }
      }
      return true;
    }),
    { numRuns: 3000 },
  );
  t.ok(openings > 500, `${openings} openings occurred`);
});
