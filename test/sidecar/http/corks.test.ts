/** Many writes in one tick for a reader that stops repeatedly: every byte is compared. */
import t from 'tap';
import type { EventStream } from '../../../sidecar/http/exchange.js';
import { deferred, serve } from '../../support/http-server.js';
import { rounds } from '../../support/long-form.js';

const GIB = 2 ** 30;
/** No stream is ever asked for being slow. */
const LIMITS = { totalBytes: GIB, backlog: { streamBytes: GIB, totalBytes: GIB } };
/** Characters of one, two, three and four bytes: a count of characters would be too small. */
const LETTERS = 'aö中🌍';
const ROUNDS = rounds({ short: 2, long: 5 });

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

for (const [what, text, perTick] of [
  ['many frames a tick', LETTERS.repeat(18), 120],
  ['sometimes a frame longer than a cork', LETTERS.repeat(2500), 2],
] as const) {
  t.test(`a reader that stops and continues misses no byte of a stream: ${what}`, async (t) => {
    const opened = deferred<EventStream>();
    const { connect } = await serve(t, (exchange) => opened.resolve(exchange.stream()), { limits: LIMITS });
    const caller = await connect();
    const received: Buffer[] = [];
    let bytes = 0;
    caller.socket.removeAllListeners('data').on('data', (piece: Buffer) => {
      received.push(piece);
      bytes += piece.length;
    });
    caller.request('GET', '/');
    const stream = await opened.promise;
    let sent = 0;
    for (let round = 0; round < ROUNDS; round++) {
      caller.socket.pause();
      // Sent in one go, so that more is written than the sockets have room for.
      const goal = bytes + 6 * 1024 * 1024;
      for (const start = stream.bytes; stream.bytes - start < goal - bytes;) {
        for (let i = 0; i < perTick; i++) stream.event(`${sent++} ${text}`);
        await turn();
      }
      caller.socket.resume();
      while (bytes < stream.bytes) await turn();
    }
    stream.end('x;dur=1');
    while (!received.at(-1)!.toString('latin1').endsWith('\r\n\r\n')) await turn();

    const body = dechunked(Buffer.concat(received));
    const frames = body.split('\n\n').filter((frame) => frame.startsWith('data: '));
    t.equal(frames.length, sent);
    const wrong = frames.findIndex((frame, i) => frame !== `data: ${i} ${text}`);
    t.equal(wrong, -1, 'every frame is whole and in order');
  });
}

t.test('pipelined answers whose heads and bodies are not ASCII', async (t) => {
  const value = '中'.repeat(1000);
  const body = LETTERS.repeat(100);
  const { connect } = await serve(t, (exchange) =>
    exchange.reply({ status: 200, headers: { 'x-name': value, 'x-more': value }, body }),
  );
  const caller = await connect();
  for (let round = 0; round < 50; round++) {
    // Two such heads nearly fill a cork.
    caller.send('GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(2));
    for (let i = 0; i < 2; i++) {
      const response = await caller.response();
      t.equal(response.field('content-length'), String(Buffer.byteLength(body)));
      t.equal(Buffer.from(response.field('x-name') ?? '', 'latin1').toString(), value);
      t.equal(response.body, body);
    }
  }
});

/** Turns of the loop after which an incomplete reply waits for its reader. */
const TURNS = 200;

/**
 * Of five answers in one cork the head of the last exceeds the cork by some hundred bytes, so the socket is most likely
 * found full there.
 */
const LENGTHS = [1560, 1590, 1620];

for (const length of LENGTHS) {
  t.test(`pipelined answers that fill the socket of a reader that stops: no byte is missing: ${length}`, async (t) => {
    const value = 'v'.repeat(length);
    const { connect, ends } = await serve(t, (exchange) =>
      exchange.reply({ status: 200, headers: { 'x-name': value, 'x-more': value }, body: 'b' }),
    );
    const caller = await connect();
    const batch = 5;
    let sent = 0;
    caller.socket.pause();
    for (let full = false; !full; full = ends.length < sent) {
      caller.send('GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(batch));
      sent += batch;
      for (let turns = 0; turns < TURNS && ends.length < sent; turns++) await turn();
    }
    caller.socket.resume();
    let [answers, wrong] = [0, 0];
    for (; answers < sent; answers++) {
      const response = await caller.response().catch((error: unknown) => {
        // The first of a batch found the socket full, so the second ended the connection.
        if (error instanceof Error && error.message.startsWith('the connection ended')) return undefined;
        throw new Error('not an answer');
      });
      if (response === undefined) break;
      const whole = response.field('x-name') === value && response.field('x-more') === value && response.body === 'b';
      if (!whole) wrong += 1;
    }
    t.ok(answers > sent - 2 * batch, `${answers} answers to ${sent} requests`);
    t.equal(wrong, 0, 'each is whole');
  });
}

/** The data of the chunks of one response. Throws if a length is not followed by so many bytes and a line break. */
function dechunked(response: Buffer): string {
  const chunks: Buffer[] = [];
  for (let at = response.indexOf('\r\n\r\n') + 4; ;) {
    const line = response.indexOf('\r\n', at);
    const size = response.toString('latin1', at, line);
    if (!/^[0-9a-f]+$/.test(size)) throw new Error(`no chunk at ${at}: ${JSON.stringify(size.slice(0, 100))}`);
    const end = line + 2 + parseInt(size, 16);
    if (size === '0') return Buffer.concat(chunks).toString();
    if (response.toString('latin1', end, end + 2) !== '\r\n') throw new Error(`no end of a chunk at ${end}`);
    chunks.push(response.subarray(line + 2, end));
    at = end + 2;
  }
}
