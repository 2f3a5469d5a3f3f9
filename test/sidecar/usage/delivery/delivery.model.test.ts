/** Whatever the sink answers and whenever the process is killed: nothing is lost, skipped or out of order. */
import fc from 'fast-check';
import t from 'tap';
import { DeliveryWalk } from '../../../support/delivery-model.js';
import { rounds } from '../../../support/long-form.js';

const WALKS = rounds({ short: 35, long: 400 });
const EVENTS = 120;

t.test('every close is delivered or a dead letter, in order, after which the cursor moves', async (t) => {
  let crashes = 0;
  let letters = 0;
  let repeats = 0;
  const events = fc.array(fc.nat({ max: 2 ** 30 }), { minLength: EVENTS, maxLength: EVENTS });
  await fc.assert(
    fc.asyncProperty(events, async (values) => {
      const walk = new DeliveryWalk();
      for (const value of values) await walk.event(value);
      await walk.finish();
      crashes += walk.crashes;
      letters += walk.harness.letters.length;
      repeats += walk.repeats;
    }),
    { numRuns: WALKS },
  );
  t.ok(
    crashes > WALKS && letters > WALKS && repeats > WALKS,
    `${crashes} crashes, ${letters} letters, ${repeats} repeats`,
  );
});
