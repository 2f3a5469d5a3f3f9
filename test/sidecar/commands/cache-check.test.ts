import t from 'tap';
import { cacheRoomCheck } from '../../../sidecar/commands/cache-check.js';

const GIB = 2 ** 30;

t.test('a /dev/shm that is smaller than what prefix caches would take is a warning', async (t) => {
  t.match(cacheRoomCheck(8 * GIB, 16 * GIB, undefined), { level: 'ok', says: '8 GiB free in /dev/shm' });
  t.match(cacheRoomCheck(GIB / 16, 16 * GIB, undefined), {
    level: 'warn',
    says: '64 MiB free in /dev/shm',
    advice: /a quarter of what is free is 4 GiB: in a container set --shm-size/,
  });
  t.match(cacheRoomCheck(2 * GIB, 16 * GIB, 3 * GIB), { level: 'warn', advice: /prefixCache\.bytes is 3 GiB/ });
  t.match(cacheRoomCheck(2 * GIB, 16 * GIB, GIB), { level: 'ok' });
  t.match(cacheRoomCheck(GIB / 16, 16 * GIB, 0), { level: 'ok', says: 'no model has one' });
  t.match(cacheRoomCheck(undefined, 16 * GIB, undefined), {
    level: 'ok',
    says: 'none, since this system has no /dev/shm',
  });
});
