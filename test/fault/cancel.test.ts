import t, { type Test } from 'tap';
import { PATIENT_ENGINE, PATIENT_QUEUE } from '../support/config-parts.js';
import { counted } from '../support/counted.js';
import { ENDLESS, endsWell, OpenStream, SHORT } from '../support/open-stream.js';
import { eventually } from '../support/processes.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';
import { STUB_JOB } from '../support/stub-script.js';
import { RealEngine } from '../support/real-engine.js';

t.test('a caller that disconnects gives its place or seat to the next', async (t) => {
  const { models } = await chatOnly(2, 32_768);
  const sidecar = await Sidecar.start(t, {
    stub: true,
    config: {
      models,
      stream: { keepAliveMs: 100 },
      queue: PATIENT_QUEUE,
      engine: PATIENT_ENGINE,
    },
  });

  /** Asserts that a request gets the only seat when `leaver` disconnects, and how that is counted. */
  const replaces = async (t: Test, leaver: OpenStream, phase: string): Promise<void> => {
    const next = sidecar.chat(SHORT);
    await counted(sidecar, 'waiting_requests', 1);
    leaver.leave();
    await counted(sidecar, 'cancels_total', 1, { phase });
    t.equal((await next).status, 200, 'the next one is served');
    await counted(sidecar, 'seats_busy', 1);
    t.equal(await sidecar.metric('ra_sidecar_waiting_requests'), 0);
  };

  // The other seat is in use until the end.
  const other = await OpenStream.begin(sidecar);
  // It has begun, and no token comes.
  const prefilling = await OpenStream.begin(sidecar, { ...ENDLESS, seed: STUB_JOB.hold }, ': keep-alive');
  await counted(sidecar, 'seats_busy', 2);

  await t.test('prefilling', (t) => replaces(t, prefilling, 'prefilling'));

  await t.test('decoding', async (t) => {
    await replaces(t, await OpenStream.begin(sidecar), 'decoding');
  });

  other.leave();
  await counted(sidecar, 'seats_busy', 0);
  endsWell(t, await (await OpenStream.begin(sidecar, SHORT)).response);
  t.equal(await sidecar.metric('ra_sidecar_engine_restarts_total', { model: CHAT }), 0);
});

t.test('the engine gives a cancelled sequence to the next job within one step', async (t) => {
  const engine = await RealEngine.start(t, { seats: 2, contextPerSeat: 32_768, prefillTokensPerStep: 32 });

  /** Cancels a job at its first output of a kind. A marker job takes the free seat, the next job the freed one. */
  const replaces = async (
    t: Test,
    old: number,
    job: Parameters<RealEngine['generate']>[1],
    at: 'started' | 'piece',
  ) => {
    const [marker, next] = [old + 1, old + 2];
    engine.generate(old, job);
    await engine.output(old, at);
    // Stopped while they are sent, the engine reads the three messages together.
    process.kill(engine.pid, 'SIGSTOP');
    engine.cancel(old);
    engine.generate(marker, { prompt: engine.prompt(8), maxTokens: 30_000 });
    engine.generate(next, { prompt: engine.prompt(8), maxTokens: 1 });
    process.kill(engine.pid, 'SIGCONT');
    await engine.output(next, 'done');

    // The marker only had to arrive, so it begins with the step after these messages came.
    const heard = engine.stepOf(marker, 'started');
    const started = engine.stepOf(next, 'started');
    t.ok(started - heard <= 1, 'the seat was free in the next step');
    t.equal(engine.stepOf(next, 'finished'), started + 1, 'and that step had its first token');
    t.ok(engine.silentAfter(old, marker), 'the old one had no further output');
    engine.cancel(marker);
    await eventually('nothing is live', () => engine.live === 0);
  };

  await t.test('decoding', (t) => replaces(t, 1, { prompt: engine.prompt(8), maxTokens: 30_000 }, 'piece'));
  await t.test('prefilling', (t) => replaces(t, 4, { prompt: engine.prompt(20_000), maxTokens: 1 }, 'started'));
});
