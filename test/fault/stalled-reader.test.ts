import { once } from 'node:events';
import t from 'tap';
import { PATIENT_QUEUE } from '../support/config-parts.js';
import { counted } from '../support/counted.js';
import { chatBody, InProcess, JSON_HEADERS } from '../support/in-process.js';
import { rounds } from '../support/long-form.js';
import { ENDLESS, endsWell, OpenStream, SHORT } from '../support/open-stream.js';
import { eventually } from '../support/processes.js';
import { chatOnly, Sidecar } from '../support/sidecar.js';

t.test('a caller that stops reading holds its seat no longer than its reply takes', async (t) => {
  const queue = PATIENT_QUEUE;
  const sidecar = await Sidecar.start(t, { stub: true, config: { ...(await chatOnly(1)), queue } });
  const stalled = await OpenStream.begin(sidecar, { ...ENDLESS, max_tokens: 150 });
  stalled.connection.socket.pause();

  const next = await sidecar.chat(SHORT);
  t.equal(next.status, 200, 'the next one is served while the first reads nothing');
  await counted(sidecar, 'seats_busy', 0);
  t.equal(await sidecar.metric('ra_sidecar_cancels_total'), 0, 'none was cut off for it');

  stalled.connection.socket.resume();
  endsWell(t, await stalled.response);
});

const READERS = rounds({ short: 20, long: 100 });
const MIB = 1 << 20;

/**
 * The most that the process may grow by while so many callers stall on endless streams: the bytes that may wait for all
 * of them (the default of `stream.totalBufferedBytes`), and twice that for received bytes that are not collected yet.
 * The callers and their memory are in this process too; the kernel’s socket buffers, some MiB a connection, are not in
 * its memory.
 */
const GROWTH_BYTES = 3 * 64 * MIB;

t.test(`${READERS} callers stop reading endless streams: memory stays bounded, others are served`, async (t) => {
  const model = { id: 'chat', kind: 'chat', seats: READERS + 2 } as const;
  // Answers of some hundred MiB are not checked here.
  const config = { development: { validateAnswers: false } };
  const sidecar = await InProcess.start(t, { models: [model], config });
  const flood = JSON.stringify(chatBody('chat', 'flood', { stream: true }));
  const begin = async (read: 'reads' | 'stalls') => {
    const { socket } = await sidecar.connect();
    // A reader that discards what it reads.
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
  // Counted by their records: on a busy machine the first is cut off before the last has a seat.
  const opened = (): number => sidecar.spool.records.filter(({ kind }) => kind === 'open').length;
  await eventually('each has a seat', () => opened() === READERS + 1);
  await sidecar.seen('reader cut off', ({ reason }) => reason === 'stream' || reason === 'total');
  const during = await sidecar.post('/v1/chat/completions', chatBody('chat', 'echo'));
  t.equal(during.status, 200, 'another caller gets a seat and an answer meanwhile');
  await sidecar.until('ra_sidecar_seats_busy{model="chat"}', 1);

  const sample = (reason: string): Promise<number> =>
    sidecar.metric(`ra_sidecar_readers_cut_total{reason="${reason}"}`);
  // By the sidecar, or if this takes over 10 s on a busy machine, by uWS, which ends idle connections.
  const ended = (): number =>
    sidecar.spool.records.filter(({ kind, outcome }) => kind === 'close' && outcome !== 'done').length;
  await eventually('each stalled caller was cut off', () => ended() === READERS);
  t.ok((await sample('stream')) + (await sample('total')) > 0);
  await once(reader, 'data');
  t.ok(reader.bytesRead > 4 * MIB, 'the reading caller was not, and continues');
  reader.destroy();
  await sidecar.until('ra_sidecar_seats_busy{model="chat"}', 0);
  await sidecar.until('ra_sidecar_stream_buffered_bytes', 0);
  const grown = most - before;
  t.ok(grown < GROWTH_BYTES, `grew by ${Math.round(grown / MIB)} MiB`);
  t.comment(`grew by ${Math.round(grown / MIB)} MiB with ${READERS} stalled readers`);
});
