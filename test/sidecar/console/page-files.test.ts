/** The page’s files where they cannot be read. */
import t from 'tap';
import { PageFiles } from '../../../sidecar/console/console.js';
import type { Exchange, Reply } from '../../../sidecar/http/exchange.js';

t.test('a file that could not be read is read again at the next request, and then kept', async (t) => {
  let reads = 0;
  const files = new PageFiles(() => {
    reads += 1;
    return reads === 1 ? Promise.reject(new Error('EMFILE')) : Promise.resolve(Buffer.from('x'));
  });
  const statuses: number[] = [];
  const exchange = {
    head: { header: () => undefined },
    reply: ({ status }: Reply) => void statuses.push(status),
  } as unknown as Exchange;
  await t.rejects(files.send(exchange, 'main.js'), { message: 'EMFILE' });
  await files.send(exchange, 'main.js');
  await files.send(exchange, 'main.js');
  t.strictSame(statuses, [200, 200]);
  t.equal(reads, 2);
});
