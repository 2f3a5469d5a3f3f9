import t, { type Test } from 'tap';
import { eventually } from '../support/processes.js';
import { RealEngine } from '../support/real-engine.js';

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
