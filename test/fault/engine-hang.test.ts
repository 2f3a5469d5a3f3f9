import t from 'tap';
import { counted } from '../support/counted.js';
import { endsEarly, endsWell, OpenStream, SHORT } from '../support/open-stream.js';
import { isRunning } from '../support/processes.js';
import { CHAT, chatOnly, Sidecar } from '../support/sidecar.js';

t.test('an engine that is stopped during a stream is killed and replaced', async (t) => {
  const engine = { hangMs: 4000 };
  const sidecar = await Sidecar.start(t, { stub: true, config: { ...(await chatOnly(2, 8192)), engine } });
  const first = sidecar.enginePid(CHAT);
  const stream = await OpenStream.begin(sidecar);

  process.kill(first, 'SIGSTOP');
  endsEarly(t, await stream.response, { code: 'bad_gateway', type: 'server_error' });
  const lost = await sidecar.logged('engine lost');
  t.match(lost, { model: CHAT, pid: first, count: 1 });
  t.match(lost['reason'], /^hang\b/);

  await sidecar.logged('engine ready', 2);
  t.notOk(isRunning(first), 'the next one starts only when it has ended');
  t.not(sidecar.enginePid(CHAT), first);
  t.equal(await sidecar.metric('ra_sidecar_engine_restarts_total', { model: CHAT }), 1);
  await counted(sidecar, 'seats_busy', 0);
  endsWell(t, await (await OpenStream.begin(sidecar, SHORT)).response);
});
