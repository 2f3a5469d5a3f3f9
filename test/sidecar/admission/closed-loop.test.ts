/**
 * Callers that wait for an answer before their next request never exceed what the seats can serve, however many wait.
 */
import fc from 'fast-check';
import t from 'tap';
import { SeatQueue } from '../../../sidecar/admission/queue.js';
import type { RefusalReason } from '../../../sidecar/domain/refusal-reasons.js';
import { FakeClock } from '../../support/fake-clock.js';
import { rounds } from '../../support/long-form.js';

const CONFIG = { maxWaitMs: 3_600_000, waitingPerSeat: 64, waitingBytes: 1e9 };

interface Loop {
  readonly seats: number;
  /** Callers of each account, each of which sends its next request once it is answered. */
  readonly callers: readonly number[];
  /** Seat times, ms, in turn. The first ones are short, so that the first estimates are wrong. */
  readonly holds: readonly number[];
  /** From a request's arrival to its last check, ms: its prompt is tokenized meanwhile. */
  readonly readyMs: number;
  readonly requests: number;
}

/** Runs the loop until so many requests have ended; returns the reasons of refused ones. */
async function refusals({ seats, callers, holds, readyMs, requests }: Loop): Promise<RefusalReason[]> {
  const clock = new FakeClock();
  const queue = new SeatQueue({ clock, random: () => 0.5, config: CONFIG, seats });
  const refused: RefusalReason[] = [];
  let ended = 0;
  let turn = 0;
  const ask = async (account: string): Promise<void> => {
    const ticket = queue.enter({ account, weight: 4, bytes: 1, seatsWanted: 1 });
    if ('kind' in ticket) {
      refused.push(ticket.reason);
      return;
    }
    clock.after(readyMs, () => ticket.ready({ promptTokens: 10 }));
    const outcome = await ticket.outcome;
    if (outcome.kind !== 'seated') {
      refused.push(outcome.kind === 'refused' ? outcome.reason : 'wait');
      return;
    }
    clock.after(holds[turn++ % holds.length] ?? 1, () => {
      outcome.lease.release('done');
      ended += 1;
      if (ended < requests) void ask(account);
    });
  };
  callers.forEach((count, i) => {
    for (let caller = 0; caller < count; caller += 1) void ask(`account-${i}`);
  });
  for (let i = 0; i < 4; i += 1) await Promise.resolve();
  while (clock.step(Infinity)) for (let i = 0; i < 4; i += 1) await Promise.resolve();
  return refused;
}

const loops = fc.record({
  seats: fc.integer({ min: 1, max: 8 }),
  callers: fc.array(fc.integer({ min: 1, max: 15 }), { minLength: 1, maxLength: 2 }),
  holds: fc
    .array(fc.integer({ min: 1, max: 2000 }), { minLength: 8, maxLength: 40 })
    .map((holds) => [1, 1, 1, ...holds]),
  readyMs: fc.constantFrom(0, 1, 20),
  requests: fc.constant(400),
});

t.test('no caller of a closed loop is refused', async (t) => {
  const property = fc.asyncProperty(loops, async (loop) => {
    const refused = await refusals(loop);
    return refused.length === 0;
  });
  await t.resolves(fc.assert(property, { numRuns: rounds({ short: 20, long: 1000 }) }));
});

t.test('after an overload, as many callers as seats who begin together are not refused', async (t) => {
  const clock = new FakeClock();
  const queue = new SeatQueue({ clock, random: () => 0.5, config: CONFIG, seats: 8 });
  const refused: RefusalReason[] = [];
  let served = 0;
  /** Asks once, with a prompt that takes 5 ms to tokenize, and leaves after `patienceMs`. */
  const ask = async (holdMs: number, patienceMs: number): Promise<void> => {
    const ticket = queue.enter({ account: 'many', weight: 4, bytes: 1, seatsWanted: 1 });
    if ('kind' in ticket) {
      refused.push(ticket.reason);
      return;
    }
    clock.after(5, () => ticket.ready({ promptTokens: 10 }));
    clock.after(patienceMs, () => ticket.cancel());
    const outcome = await ticket.outcome;
    if (outcome.kind !== 'seated') return;
    clock.after(holdMs, () => {
      outcome.lease.release('done');
      served += 1;
    });
  };
  const passes = async (ms: number): Promise<void> => {
    for (const until = clock.now() + ms; clock.step(until);) for (let i = 0; i < 4; i += 1) await Promise.resolve();
  };
  for (let i = 0; i < 1000; i += 1) {
    void ask(3000, 8000);
    await passes(40);
  }
  t.ok(refused.length > 500, `${refused.length} of an overload are refused`);
  while (queue.snapshot().busy > 0) await passes(10);
  refused.length = 0;
  served = 0;
  for (let round = 0; round < 6; round += 1) {
    for (let caller = 0; caller < 8; caller += 1) void ask(6000, 60_000);
    await passes(6010);
  }
  t.strictSame(refused, [], `${served} are served`);
});
