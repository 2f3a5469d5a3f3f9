import { once } from 'node:events';
import t from 'tap';
import { counted } from '../support/faults.js';
import { chatBody, InProcess, JSON_HEADERS } from '../support/in-process.js';
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

const READERS = 100;
const MIB = 1 << 20;

/**
 * What the process may grow by while so many stall on endless streams: what may wait for all of them (the default of
 * `stream.totalBufferedBytes`), and as much again twice for what was read and is not collected yet. The callers and what
 * they keep are in this process too; the systems' own socket buffers, some MiB a connection, are not in its memory.
 */
const GROWTH_BYTES = 3 * 64 * MIB;

t.test('a hundred callers who stop reading endless streams: memory stays bounded, others go on', async (t) => {
  const model = { id: 'chat', kind: 'chat', seats: READERS + 2 } as const;
  // Checking answers of some hundred MiB is not what this is about.
  const config = { development: { validateAnswers: false } };
  const sidecar = await InProcess.start(t, { models: [model], config });
  const flood = JSON.stringify(chatBody('chat', 'flood', { stream: true }));
  const begin = async (read: 'reads' | 'stalls') => {
    const { socket } = await sidecar.connect();
    // A reader who keeps nothing.
    socket.removeAllListeners('data');
    if (read === 'stalls') socket.pause();
    else socket.resume();
    const length = Buffer.byteLength(flood);
    const headers = Object.entries({ Host: 'test', ...JSON_HEADERS, 'Content-Length': length });
    const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(`POST /v1/chat/completions HTTP/1.1\r\n${lines.join('')}\r\n${flood}`);
    return socket;
  };
  const before = process.memoryUsage().rss;
  let most = before;
  const watch = setInterval(() => (most = Math.max(most, process.memoryUsage().rss)), 10);
  t.teardown(() => clearInterval(watch));

  const reader = await begin('reads');
  for (let i = 0; i < READERS; i++) await begin('stalls');
  await sidecar.until('ra_sidecar_seats_busy{model="chat"}', READERS + 1);
  await sidecar.seen('reader cut off', ({ reason }) => reason === 'stream' || reason === 'total');
  const during = await sidecar.post('/v1/chat/completions', chatBody('chat', 'echo'));
  t.equal(during.status, 200, 'a seat and an answer for another one meanwhile');
  await sidecar.until('ra_sidecar_seats_busy{model="chat"}', 1);

  const sample = (reason: string): Promise<number> =>
    sidecar.metric(`ra_sidecar_readers_cut_total{reason="${reason}"}`);
  const cut = (await sample('stream')) + (await sample('total'));
  // On a machine so busy that this takes over 10 s, uWS ends some for having been idle: those count as having left.
  const left = await sidecar.metric('ra_sidecar_cancels_total');
  t.equal(cut + left, READERS, `each who stalled was cut off, ${left} of them by uWS`);
  t.ok(cut > left);
  await once(reader, 'data');
  t.ok(reader.bytesRead > 4 * MIB, 'the one who reads was not, and reads on');
  reader.destroy();
  await sidecar.until('ra_sidecar_seats_busy{model="chat"}', 0);
  await sidecar.until('ra_sidecar_stream_buffered_bytes', 0);
  const grown = most - before;
  t.ok(grown < GROWTH_BYTES, `grew by ${Math.round(grown / MIB)} MiB`);
  t.comment(`grew by ${Math.round(grown / MIB)} MiB with ${READERS} stalled readers`);
});
