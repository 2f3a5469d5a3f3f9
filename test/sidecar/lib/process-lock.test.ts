import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { once } from 'node:events';
import t from 'tap';
import { holderOf, lockName } from '../../../sidecar/lib/process-lock.js';

function fresh(): string {
  return `ra-sidecar/test/${randomUUID()}`;
}

t.test('a name has one owner until it is released', async (t) => {
  const name = fresh();
  t.equal(await holderOf(name), undefined);
  const claims = await Promise.all(Array.from({ length: 20 }, () => lockName(name)));
  const won = claims.filter((lock) => lock !== undefined);
  t.equal(won.length, 1);
  t.equal(await holderOf(name), process.pid);
  const other = await lockName(fresh());
  t.ok(other, 'another name is free');
  await other?.release();
  await won[0]?.release();
  await won[0]?.release();
  t.equal(await holderOf(name), undefined);
  const again = await lockName(name);
  t.ok(again);
  await again?.release();
});

t.test('connections that stay open do not keep the name', async (t) => {
  const name = fresh();
  const lock = await lockName(name);
  const socket = connect({ path: `\0${name}`, allowHalfOpen: true });
  await once(socket, 'connect');
  await lock?.release();
  t.equal(await holderOf(name), undefined);
  socket.destroy();
});
