import t, { type Test } from 'tap';
import { counted } from '../support/faults.js';
import { ENDLESS, endsWell, OpenStream, SHORT } from '../support/open-stream.js';
import { eventually } from '../support/processes.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';
import { RealEngine } from '../support/real-engine.js';

/** Some 20,000 tokens, which take seconds in chunks of 32. */
const LONG_PROMPT = { ...ENDLESS, messages: [{ role: 'user', content: 'What is it? '.repeat(5000) }] };

t.test('a caller that leaves gives its place or seat to the next', async (t) => {
  const { models } = await chatOnly(2, 32_768);
  const sidecar = await Sidecar.start(t, {
    config: {
      models: models.map((model) => ({ ...model, prefillTokensPerStep: 32 })),
      stream: { keepAliveMs: 100 },
      queue: { maxWaitMs: 600_000 },
    },
  });

  /** Asserts that a request gets the one seat that comes free when `leaver` goes, and how its leaving is counted. */
  const replaces = async (t: Test, leaver: OpenStream, phase: string): Promise<void> => {
    const next = sidecar.chat(SHORT);
    await counted(sidecar, 'waiting_requests', 1);
    leaver.leave();
    t.equal((await next).status, 200, 'the next one is served');
    await counted(sidecar, 'cancels_total', 1, { phase });
    await counted(sidecar, 'seats_busy', 1);
    t.equal(await sidecar.metric('ra_sidecar_waiting_requests'), 0);
  };

  // Its prefill goes on long after the head and a first comment went out. The other seat is taken until the end; and since
  // an engine takes jobs in turn, the other one's first token shows that this one has begun.
  const prefilling = await OpenStream.begin(sidecar, LONG_PROMPT, ': keep-alive');
  const other = await OpenStream.begin(sidecar);

  await t.test('prefilling', (t) => replaces(t, prefilling, 'prefilling'));

  await t.test('decoding', async (t) => {
    await replaces(t, await OpenStream.begin(sidecar), 'decoding');
  });

  await t.test('waiting', async (t) => {
    const holder = await OpenStream.begin(sidecar);
    const leave = new AbortController();
    const left = sidecar.chat(ENDLESS, { signal: leave.signal });
    await counted(sidecar, 'waiting_requests', 1);
    const next = sidecar.chat(SHORT);
    await counted(sidecar, 'waiting_requests', 2);
    leave.abort();
    await t.rejects(left, { name: 'AbortError' });
    await counted(sidecar, 'waiting_requests', 1);
    await counted(sidecar, 'cancels_total', 1, { phase: 'waiting' });
    holder.leave();
    t.equal((await next).status, 200, 'who came behind is served, and not who left');
  });

  other.leave();
  await counted(sidecar, 'seats_busy', 0);
  endsWell(t, await (await OpenStream.begin(sidecar, SHORT)).response);
  t.equal(await sidecar.metric('ra_sidecar_engine_restarts_total', { model: CHAT }), 0);
});

t.test('the engine gives a cancelled sequence to the next job within one step', async (t) => {
  const engine = await RealEngine.start(t, { seats: 1, contextPerSeat: 32_768, prefillTokensPerStep: 32 });

  await t.test('while decoding', async (t) => {
    engine.generate(1, { prompt: engine.prompt(8), maxTokens: 30_000 });
    await engine.output(1, 'piece');
    engine.cancel(1);
    engine.generate(2, { prompt: engine.prompt(8), maxTokens: 1 });
    await engine.output(2, 'done');

    const last = engine.stepOf(1, 'piece', 'last');
    const started = engine.stepOf(2, 'started', 'first');
    t.ok(started - last <= 1, 'at most the step that was under way was lost');
    t.equal(engine.stepOf(2, 'finished', 'first'), started + 1, 'the very next step is the new job’s');
    t.ok(engine.silentAfter(1, 2), 'nothing more came of the old one');
  });

  await t.test('while prefilling', async (t) => {
    const tokens = 20_000;
    engine.generate(3, { prompt: engine.prompt(tokens), maxTokens: 1 });
    await engine.output(3, 'started');
    engine.cancel(3);
    engine.generate(4, { prompt: engine.prompt(8), maxTokens: 1 });
    await engine.output(4, 'done');

    const started = engine.stepOf(4, 'started', 'first');
    t.ok(started - engine.stepOf(3, 'started', 'first') < tokens / 32, 'not after its whole prompt');
    t.equal(engine.stepOf(4, 'finished', 'first'), started + 1, 'the very next step is the new job’s');
    t.ok(engine.silentAfter(3, 4), 'nothing more came of the old one');
  });

  await eventually('nothing is live', () => engine.live === 0);
});
