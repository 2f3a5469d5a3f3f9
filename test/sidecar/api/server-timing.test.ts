import t from 'tap';
import { ChatHarness } from '../../support/chat-harness.js';

t.test('ra-queue and ra-admit are the times before the engine, each its own part', async (t) => {
  const harness = new ChatHarness();
  const first = harness.ask({ authorize: 2, check: 0.25, tokenize: 1.5 });
  const running = await harness.engine.generation(0);
  // Neither includes the model, although the header of a whole reply is written after it.
  harness.clock.advance(100);

  const second = harness.ask({ authorize: 1, check: 0.5, tokenize: 3 });
  // It is seated once its last check passed and the first has ended; the macrotask lets all its steps pass.
  await new Promise((resolve) => setImmediate(resolve));
  t.equal(harness.engine.generations.length, 1, 'it waits');
  harness.clock.advance(40);
  running.started().pieces('a').finished().done();
  const served = await harness.engine.generation(1);
  harness.clock.advance(7);
  served.started().pieces('b').finished().done();

  t.equal((await first).headers?.['Server-Timing'], 'authorize;dur=2, ra-queue;dur=0, ra-admit;dur=3.75');
  t.equal((await second).headers?.['Server-Timing'], 'authorize;dur=1, ra-queue;dur=40, ra-admit;dur=4.5');
});

t.test('a refusal after a wait has the wait and the sidecar’s own time', async (t) => {
  const harness = new ChatHarness();
  void harness.ask({ authorize: 0, check: 0, tokenize: 0 });
  await harness.engine.generation(0);
  const refused = harness.ask({ authorize: 1, check: 2, tokenize: 4 });
  await new Promise((resolve) => setImmediate(resolve));
  harness.clock.advance(10_000);
  const { status, headers } = await refused;
  t.equal(status, 429);
  t.equal(headers?.['Server-Timing'], 'authorize;dur=1, ra-queue;dur=10000, ra-admit;dur=7');
});
