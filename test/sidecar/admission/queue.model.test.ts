import fc from 'fast-check';
import t from 'tap';
import { QueueWalk } from '../../support/queue-model.js';
import { rounds } from '../../support/long-form.js';

const WALKS = rounds({ short: 30, long: 1000 });
const EVENTS = 1000;

t.test(`${WALKS * EVENTS} random events leak no seat, byte, timer or outcome`, { timeout: 120_000 }, async (t) => {
  let events = 0;
  // Of fixed length, so that the total is known; a failing walk shrinks towards events without effect.
  const walk = fc.array(fc.nat({ max: 2 ** 46 }), { minLength: EVENTS, maxLength: EVENTS });
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 5 }), walk, async (seats, values) => {
      const queue = new QueueWalk(seats);
      for (const value of values) {
        const settling = queue.event(value);
        if (settling !== undefined) await settling;
      }
      await queue.finish();
      events += values.length;
    }),
    { numRuns: WALKS },
  );
  t.equal(events, WALKS * EVENTS);
});
