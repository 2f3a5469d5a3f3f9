/** Several models at once, loaded on demand and unloaded when idle, with real engines. */
import t from 'tap';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { embeddedTestModel } from '../support/models.js';
import { ENDLESS, SHORT, endsEarly, endsWell, OpenStream } from '../support/open-stream.js';
import { ENGINE, ProcessGate } from '../support/process-gate.js';
import { eventually, isRunning } from '../support/processes.js';
import { CHAT, DECIDE, Sidecar } from '../support/sidecar.js';
import { STUB_JOB } from '../support/stub-script.js';

const OTHER = 'ra-other-chat';
const FLEETING = 'ra-fleeting-chat';
const SEATS = { kind: 'chat', seats: 2, contextPerSeat: 2048 };

async function models(...all: Readonly<Record<string, unknown>>[]): Promise<{ models: readonly object[] }> {
  const file = await embeddedTestModel();
  return { models: all.map((model) => ({ ...SEATS, file, ...model })) };
}

/** The state of a model’s engine in the metrics. */
async function isIn(sidecar: Sidecar, model: string, state: string): Promise<boolean> {
  return (await sidecar.metric('ra_sidecar_engine_state', { model, state })) === 1;
}

t.test(
  'a lazy model: the sidecar is ready without it; loaded by the first request, unloaded when idle, and loaded again',
  async (t) => {
    const gate = new ProcessGate(t, { stub: true });
    const { environment } = gate;
    const sidecar = await Sidecar.start(t, {
      stub: true,
      environment,
      config: {
        stream: { keepAliveMs: 100 },
        ...(await models(
          { id: CHAT },
          { id: OTHER, load: 'lazy', idleUnloadMs: 2000 },
          { id: FLEETING, contextPerSeat: 4096, load: 'lazy', idleUnloadMs: 400 },
        )),
        queue: PATIENT_QUEUE,
      },
    });
    t.match(sidecar.printed, `${OTHER} (chat, 2 seats, loaded at the first request)`);
    t.equal((await sidecar.readyz()).status, 200);
    t.ok(await isIn(sidecar, OTHER, 'unloaded'));
    t.throws(() => sidecar.enginePid(OTHER), 'it has no process');

    const ask = (): Promise<Response> => sidecar.post('/chat/completions', { ...SHORT, model: OTHER });
    const unknown = await sidecar.post('/chat/completions', { ...SHORT, model: OTHER }, { key: 'ra-test-unknown' });
    t.equal(unknown.status, 401);
    t.ok(await isIn(sidecar, OTHER, 'unloaded'), 'a request without permission does not load it');

    const answered = await ask();
    t.equal(answered.status, 200, 'the request for which it is loaded waits for it');
    const pid = sidecar.enginePid(OTHER);
    t.match(await answered.json(), { model: OTHER, usage: { completion_tokens: 4 } });

    await sidecar.logged('engine unloaded', 1, (line) => line['pid'] === pid);
    await eventually('its process has ended', () => !isRunning(pid));
    t.ok(await isIn(sidecar, OTHER, 'unloaded'));
    t.equal((await sidecar.readyz()).status, 200);
    t.equal(await sidecar.metric('ra_sidecar_engine_restarts_total', { model: OTHER }), 0);

    gate.close(ENGINE);
    const loading = await OpenStream.begin(sidecar, { ...SHORT, model: OTHER }, ': keep-alive');
    const { goOn } = await gate.stopped();
    t.ok(await isIn(sidecar, OTHER, 'cold'), 'a stream is kept alive while its model loads');
    goOn();
    endsWell(t, await loading.response);
    t.not(sidecar.enginePid(OTHER), pid);
    t.ok(await isIn(sidecar, CHAT, 'ready'), 'the eager one ran all the time');

    await t.test('an idle time does not end a stream that lasts longer', async (t) => {
      const held = { ...ENDLESS, model: FLEETING, seed: STUB_JOB.hold };
      const stream = await OpenStream.begin(sidecar, held, ': keep-alive');
      await sidecar.logged('engine ready', 1, ({ model }) => model === FLEETING);
      // Another model's longer idle time passes meanwhile, by the sidecar's own clock.
      const unloads = (of: string): number =>
        sidecar.lines.filter(({ event, model }) => event === 'engine unloaded' && model === of).length;
      t.equal((await ask()).status, 200);
      await sidecar.logged('engine unloaded', unloads(OTHER) + 1, ({ model }) => model === OTHER);
      t.equal(unloads(FLEETING), 0);
      stream.leave();
      await sidecar.logged('engine unloaded', 1, ({ model }) => model === FLEETING);
    });
  },
);

t.test('two chat models and a decision model at once, each on its own', async (t) => {
  const sidecar = await Sidecar.start(t, {
    stub: true,
    config: {
      ...(await models(
        { id: CHAT, contextPerSeat: 8192 },
        { id: OTHER, contextPerSeat: 8192 },
        { id: DECIDE, kind: 'decision', contextPerSeat: 8192 },
      )),
      // With the memory of each counted before it is loaded, as by default.
      engine: { checkMemory: true },
    },
  });
  await sidecar.logged('engine ready', 3);
  const pids = [CHAT, OTHER, DECIDE].map((id) => sidecar.enginePid(id));
  t.equal(new Set(pids).size, 3);
  const loads = sidecar.lines.filter(({ event }) => event === 'engine forked' || event === 'engine ready');
  t.strictSame(
    loads.map(({ event }) => event),
    Array.from({ length: 3 }, () => ['engine forked', 'engine ready']).flat(),
    'they were loaded one after another',
  );

  const [kept, cut] = await Promise.all([
    OpenStream.begin(sidecar),
    OpenStream.begin(sidecar, { ...ENDLESS, model: OTHER }),
  ]);
  process.kill(sidecar.enginePid(OTHER), 'SIGKILL');
  endsEarly(t, await cut.response, { code: 'bad_gateway', type: 'server_error' });
  const question = { id: 'a', type: 'yes_no', question: 'Is it wet?' };
  const decided = await sidecar.post('/decisions', { model: DECIDE, input: 'It rains.', questions: [question] });
  t.equal(decided.status, 200);
  t.equal(sidecar.enginePid(CHAT), pids[0], 'the other chat model’s engine runs on');
  await sidecar.logged('engine ready', 2, ({ model }) => model === OTHER);
  t.equal((await sidecar.post('/chat/completions', { ...SHORT, model: OTHER })).status, 200);
  kept.leave();
  t.equal(await sidecar.metric('ra_sidecar_engine_restarts_total', { model: CHAT }), 0);
});
