/**
 * Callers that wait for an answer before their next request never exceed what the seats can serve, however many wait.
 */
import fc from 'fast-check';
import t from 'tap';
import { createFairQueue } from '../../../sidecar/admission/fair-queue.js';
import type { RefusalReason } from '../../../sidecar/admission/seat-queue.js';
import { FakeClock } from '../../support/fake-clock.js';
import { rounds } from '../../support/long-form.js';

const CONFIG = { maxWaitMs: 3_600_000, waitingPerSeat: 64, waitingBytes: 1e9 };

interface Loop {
  readonly seats: number;
  /** Callers of each account, each of which sends its next request once it is answered. */
  readonly callers: readonly number[];
  /** Seat times, ms, in turn. The first ones are short, so that the first estimates are wrong. */
  readonly holds: readonly number[];
  readonly requests: number;
}

/** Runs the loop until so many requests have ended; returns the reasons of refused ones. */
async function refusals({ seats, callers, holds, requests }: Loop): Promise<RefusalReason[]> {
  const clock = new FakeClock();
  const queue = createFairQueue({ clock, random: () => 0.5, config: CONFIG, seats });
  const refused: RefusalReason[] = [];
  let ended = 0;
  let turn = 0;
  const ask = async (account: string): Promise<void> => {
    const ticket = queue.enter({ account, weight: 4, bytes: 1, seatsWanted: 1 });
    if ('kind' in ticket) {
      refused.push(ticket.reason);
      return;
    }
    ticket.ready({ promptTokens: 10, maxTokens: 10 });
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
  requests: fc.constant(400),
});

t.test('no caller of a closed loop is refused', async (t) => {
  const property = fc.asyncProperty(loops, async (loop) => {
    const refused = await refusals(loop);
    return refused.length === 0;
  });
  await t.resolves(fc.assert(property, { numRuns: rounds({ short: 60, long: 1000 }) }));
});
