import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import t from 'tap';
import { parse, RawConnection } from './raw-http.js';

const read = (text: string, head = false) => parse(Buffer.from(text, 'latin1'), head);

t.test('whole responses', async (t) => {
  const sized = read('HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 2\r\n\r\nabc');
  t.match(sized, { length: 46, response: { status: 200, reason: 'OK', body: 'ab' } });
  t.equal(sized?.response.field('a'), 'b');
  const chunked = read('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\nT: u\r\n\r\n');
  t.match(chunked?.response, { body: 'abc', chunks: ['a', 'bc'], trailers: [['T', 'u']] });
  t.equal(read('HTTP/1.1 100 Continue\r\n\r\n')?.response.status, 100);
  t.equal(read('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n', true)?.response.body, '');
});

t.test('every prefix of a response is incomplete', async (t) => {
  for (const text of [
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nT: u\r\n\r\n',
  ]) {
    for (let length = 0; length < text.length; length++) t.equal(read(text.slice(0, length)), undefined);
  }
});

t.test('a text that is awaited, and one that the response does not have', async (t) => {
  const server = createServer((socket) => {
    t.teardown(() => socket.destroy());
    socket.write('HTTP/1.1 503 Later\r\nContent-Length: 5\r\n\r\na b c');
  }).listen(0, '127.0.0.1');
  t.teardown(() => server.close());
  await once(server, 'listening');
  const connection = await RawConnection.open((server.address() as AddressInfo).port);
  t.teardown(() => connection.close());
  await connection.until('b');
  await t.rejects(connection.until('d'), { message: /^no "d" in "HTTP\/1\.1 503 Later/ }, 'it is not waited for');
  t.equal((await connection.response()).body, 'a b c');
});

t.test('what HTTP/1.1 forbids', async (t) => {
  const chunked = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
  for (const text of [
    'HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200 OK\r\n folded\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200 OK\r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n',
    `${chunked}1;a=b\r\nx\r\n0\r\n\r\n`,
    `${chunked}1\r\nxy\r\n0\r\n\r\n`,
    `${chunked}\r\n1\r\nx\r\n0\r\n\r\n`,
  ]) {
    t.throws(() => read(text), JSON.stringify(text));
  }
});
