/** When a replica counts as idle, on a stand-in engine and by a clock of the test. */
import t from 'tap';
import { runChat } from '../../support/generate-job.js';
import { EngineHarness, stubJob, STUB_ENTRY } from '../../support/engine-harness.js';
import { FakeClock } from '../../support/fake-clock.js';
import { RecordingReceiver } from '../../support/recording-receiver.js';

const IDLE_MS = 800;
const CHECK_MS = IDLE_MS / 8;

t.test('it is unloaded once no job, no touch and no waiting request was seen for its idle time', async (t) => {
  const clock = new FakeClock();
  let waits = true;
  const onDemand = { lazy: false, idleUnloadMs: IDLE_MS, wanted: () => waits };
  const harness = new EngineHarness({}, { hangMs: 1e9 }, STUB_ENTRY, { clock, onDemand });
  const { engine } = harness;
  t.teardown(() => engine.close());
  engine.start();
  await harness.ready();
  const receiver = new RecordingReceiver();
  const { cancel } = runChat(engine, stubJob('hold'), receiver);
  await receiver.begun;
  waits = false;
  clock.advance(20 * IDLE_MS);
  t.equal(engine.state, 'ready', 'a job runs, however long');
  waits = true;
  cancel();
  clock.advance(20 * IDLE_MS);
  t.equal(engine.state, 'ready', 'a request waits, however long');
  waits = false;
  clock.advance(IDLE_MS - CHECK_MS - 1);
  engine.touch();
  clock.advance(IDLE_MS - 1);
  t.equal(engine.state, 'ready', 'a job between two checks counts');
  clock.advance(CHECK_MS);
  t.equal(engine.state, 'unloaded');
  t.equal(harness.unloads, 1);
});
