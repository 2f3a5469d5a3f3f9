import t from 'tap';
import { counted } from '../support/faults.js';
import { ENDLESS, endsWell, OpenStream, SHORT } from '../support/open-stream.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';

t.test('a caller that stops reading holds its seat no longer than its reply takes', async (t) => {
  const queue = { maxWaitMs: 600_000 };
  const sidecar = await Sidecar.start(t, { config: { ...(await chatOnly(1)), queue } });
  const stalled = await OpenStream.begin(sidecar, { ...ENDLESS, max_tokens: 1500 });
  stalled.connection.socket.pause();

  const next = await sidecar.chat(SHORT);
  t.equal(next.status, 200, 'the next one is served while the first reads nothing');
  await counted(sidecar, 'seats_busy', 0);
  t.equal(await sidecar.metric('ra_sidecar_cancels_total'), 0, 'nobody was cut off for it');

  stalled.connection.socket.resume();
  endsWell(t, await stalled.response);
});
