import { connect, type Socket } from 'node:net';
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { systemClock } from '../../../sidecar/lib/clock.js';
import { Server } from '../../../sidecar/http/server.js';
import { eventually } from '../../support/processes.js';

const MOST = 3;

async function open(t: Test, port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  t.teardown(() => socket.destroy());
  await once(socket, 'connect');
  return socket;
}

t.test('connections past the bound are closed at once, and their places are free again', async (t) => {
  let refused = 0;
  const server = new Server({
    routes: { '/': { GET: (exchange) => exchange.reply({ status: 200, body: 'ok' }) } },
    origins: [],
    clock: systemClock,
    limits: { totalBytes: 1024, connections: MOST },
    onFault: () => undefined,
    onConnectionRefused: () => (refused += 1),
  });
  t.teardown(() => server.close());
  const { port } = await server.listen('127.0.0.1', 0);
  const kept: Socket[] = [];
  for (let i = 0; i < MOST; i += 1) kept.push(await open(t, port));
  await eventually('all are seen', () => server.connections === MOST);

  const late = await open(t, port);
  await once(late, 'close');
  t.equal(refused, 1);
  t.equal(server.connections, MOST, 'it is no longer counted');

  const [first, second] = kept;
  second?.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  const [reply] = (await once(second as Socket, 'data')) as [Buffer];
  t.match(reply.toString(), /^HTTP\/1\.1 200/, 'those within the bound are served');

  first?.destroy();
  await eventually('a place', () => server.connections === MOST - 1);
  const next = await open(t, port);
  next.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  await once(next, 'data');
  t.equal(refused, 1);
});
