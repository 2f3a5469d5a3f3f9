import t from 'tap';
import { OpenStream } from '../support/open-stream.js';
import { eventually, groupMembers } from '../support/processes.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';

async function leavesNobody(sidecar: Sidecar): Promise<void> {
  sidecar.child.kill('SIGKILL');
  await eventually('engine and prompt host have ended', () => groupMembers(sidecar.pid).length === 0);
}

t.test('a sidecar killed under load leaves no process behind', async (t) => {
  const sidecar = await Sidecar.start(t, { stub: true, ownGroup: true });
  // The prompt host of long bodies may start with the first of them.
  await sidecar.chat({ messages: [{ role: 'user', content: 'x '.repeat(10_000) }] });
  t.equal(groupMembers(sidecar.pid).length, 5, 'the sidecar, two engines, two prompt hosts');
  const stream = await OpenStream.begin(sidecar);
  await leavesNobody(sidecar);
  await t.rejects(stream.response, /the connection ended/);
});

t.test('nor does one that is killed while its children start', async (t) => {
  const sidecar = await Sidecar.start(t, { stub: true, ownGroup: true, early: true, config: await chatOnly(1) });
  await sidecar.logged('engine forked');
  await leavesNobody(sidecar);
  t.pass();
});
