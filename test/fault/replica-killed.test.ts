/** One of several engine processes of a model ends: its own requests end, the others’ do not. */
import t from 'tap';
import { FeedReader } from '../support/console-feed.js';
import { NOTHING_LEARNED, PATIENT_QUEUE } from '../support/config-parts.js';
import { counted } from '../support/counted.js';
import { embeddedTestModel } from '../support/models.js';
import { eventually } from '../support/processes.js';
import { SHORT, endsEarly, OpenStream } from '../support/open-stream.js';
import { CHAT, Sidecar, type LogLine } from '../support/sidecar.js';
import { ENGINE, ProcessGate } from '../support/process-gate.js';

const BAD_GATEWAY = { code: 'bad_gateway', type: 'server_error' };
const REPLICAS = 3;
const SEATS = 2;

const label = { model: CHAT };
const of =
  (replica: number) =>
  (line: LogLine): boolean =>
    line['replica'] === replica;

async function start(gate: ProcessGate, early = false): Promise<Sidecar> {
  const file = await embeddedTestModel();
  const model = { id: CHAT, kind: 'chat', file, gpu: false, threads: 1, seats: SEATS, contextPerSeat: 32_768 };
  const config = {
    models: [{ ...model, replicas: REPLICAS }],
    // None is refused for its wait: a request that fails was lost.
    queue: { ...PATIENT_QUEUE, waitingPerSeat: 1000 },
    development: NOTHING_LEARNED,
    engine: { backoffMinMs: 10, backoffMaxMs: 100 },
  };
  return Sidecar.start(t, { stub: true, config, early, environment: gate.environment });
}

/** The process of a replica’s `life`, counted from 1. */
async function pidOf(sidecar: Sidecar, replica: number, life = 1): Promise<number> {
  return Number((await sidecar.logged('engine forked', life, of(replica)))['pid']);
}

t.test('one of three is killed during streams', async (t) => {
  const gate = new ProcessGate(t, { stub: true });
  const sidecar = await start(gate);
  const streams = await Promise.all(Array.from({ length: REPLICAS * SEATS }, () => OpenStream.begin(sidecar)));
  const ended: OpenStream[] = [];
  for (const stream of streams)
    stream.response.then(
      () => ended.push(stream),
      () => undefined,
    );
  const waiting = [1, 2].map(() => sidecar.chat(SHORT));
  await counted(sidecar, 'waiting_requests', 2);

  gate.close(ENGINE);
  process.kill(await pidOf(sidecar, 1), 'SIGKILL');
  const { goOn } = await gate.stopped();
  t.match(await sidecar.logged('engine lost'), { model: CHAT, replica: 1, reason: 'killed', count: SEATS });
  await counted(sidecar, 'seats_busy', (REPLICAS - 1) * SEATS);
  t.equal(await sidecar.metric('ra_sidecar_seats', label), (REPLICAS - 1) * SEATS, 'its seats are gone');
  t.match(await sidecar.readyz(), { status: 200, body: { status: 'ready' } });
  t.match(await sidecar.readyz(sidecar.operatorsPort), { body: { reasons: [`cold: ${CHAT}: replica 1`] } });
  t.equal(await sidecar.metric('ra_sidecar_engine_state', { ...label, state: 'ready' }), 1);
  t.equal(await sidecar.metric('ra_sidecar_replica_state', { ...label, replica: '1', state: 'cold' }), 1);
  t.equal(await sidecar.metric('ra_sidecar_waiting_requests', label), 2, 'waiting requests keep their places');
  await eventually('its streams have ended', () => ended.length >= SEATS);
  const cut = [...ended];
  t.equal(cut.length, SEATS, 'the streams of the others continue');
  for (const stream of cut) endsEarly(t, await stream.response, BAD_GATEWAY);

  goOn();
  for (const response of await Promise.all(waiting)) t.equal(response.status, 200);
  await sidecar.logged('engine ready', REPLICAS + 1);
  t.equal(await sidecar.metric('ra_sidecar_seats', label), REPLICAS * SEATS);

  for (const stream of streams) if (!cut.includes(stream)) stream.leave();
  await counted(sidecar, 'seats_busy', 0);

  await t.test('a request that it had not begun runs on another replica, before it is back', async (t) => {
    const pid = await pidOf(sidecar, 2);
    process.kill(pid, 'SIGSTOP');
    const busy = (): Promise<number> => sidecar.metric('ra_sidecar_replica_seats_busy', { ...label, replica: '2' });
    const all: Promise<Response>[] = [];
    let answered = 0;
    // As many at once as there are seats, since the others may be chosen first if this one seemed slower under the streams.
    while ((await busy()) === 0) {
      const round = Array.from({ length: REPLICAS * SEATS }, () => sidecar.chat(SHORT));
      for (const one of round) void one.then(() => (answered += 1));
      all.push(...round);
      // The others answer theirs, and it answers none.
      await eventually('it has one, or all are answered', async () => (await busy()) > 0 || answered === all.length);
    }
    await eventually('all but its own have answers', async () => all.length - answered === (await busy()));
    gate.close(ENGINE);
    process.kill(pid, 'SIGKILL');
    const { goOn } = await gate.stopped();
    for (const response of await Promise.all(all)) {
      t.equal(response.status, 200);
      t.match(await response.json(), { usage: { completion_tokens: 4 } });
    }
    goOn();
    await sidecar.logged('engine ready', 2, of(2));
  });
});

t.test('a replica whose starts crash is given up, and the others serve', async (t) => {
  const gate = new ProcessGate(t, { stub: true });
  gate.close(ENGINE);
  const sidecar = await start(gate, true);
  // Three lives of the one, and one of each other.
  for (let i = 0; i < 3 + REPLICAS - 1; i += 1) {
    const { pid } = await gate.stopped();
    const { replica } = await sidecar.logged('engine forked', 1, (line) => line['pid'] === pid);
    if (replica === 1) process.kill(pid, 'SIGABRT');
    process.kill(pid, 'SIGCONT');
  }
  gate.open();
  await sidecar.until(() => sidecar.printed.includes('is ready at'), 'start');
  t.match(await sidecar.logged('engine cannot serve its model'), { model: CHAT, replica: 1, reason: /aborted/ });
  t.match(await sidecar.readyz(), { status: 200, body: { status: 'ready' } });
  const why = `lost: ${CHAT}: replica 1: llama.cpp ended each of 3 loads by a crash`;
  t.match(await sidecar.readyz(sidecar.operatorsPort), { status: 200, body: { reasons: [new RegExp(`^${why}`)] } });
  t.equal(await sidecar.metric('ra_sidecar_replica_state', { ...label, replica: '1', state: 'lost' }), 1);
  t.equal(await sidecar.metric('ra_sidecar_seats', label), (REPLICAS - 1) * SEATS);
  const feed = await FeedReader.open(sidecar.operatorsPort);
  t.match((await feed.next())?.models[0]?.engine, {
    state: 'ready',
    replicas: [
      { state: 'ready', problem: null, seats: SEATS },
      { state: 'lost', problem: /ended each of 3 loads by a crash/, seats: 0 },
      { state: 'ready', problem: null, seats: SEATS },
    ],
  });
  feed.close();
  const key = /ra-dev-[\w-]+/.exec(sidecar.printed)?.[0] ?? '';
  const response = await sidecar.post('/chat/completions', SHORT, { key });
  t.equal(response.status, 200);
});
