import fc from 'fast-check';
import t from 'tap';
import { Backlog } from '../../../sidecar/http/backlog.js';
import { BodyWriter, type BodyWriterResponse } from '../../../sidecar/http/body-writer.js';
import { SseStream } from '../../../sidecar/http/sse.js';
import { grownOld, youngCollector } from '../../support/grown-old.js';
import { BARE_END, parse } from '../../support/raw-http.js';

const DATE = new Date(0).toUTCString();

/** A stream whose packets are strings; `writeHeader` and `endWithoutBody` write what uWS’s do. */
function setup() {
  const packets: string[] = [];
  const ends: number[] = [];
  let packet = '';
  const res = {
    writeHeader: (key: string, value: string) => {
      packet += `${key}: ${value}\r\n`;
      return res;
    },
    endWithoutBody: () => {
      packet += 'Date: -\r\n\r\n';
      return res;
    },
  };
  const asked = {
    getWriteOffset: () => 0,
    tryEnd: (bytes: Uint8Array, total: number) => {
      packet += `Date: ${DATE}\r\nContent-Length: ${total}\r\n\r\n${Buffer.from(bytes).toString('latin1')}`;
      return [true, true];
    },
    onWritable: () => res,
    cork: (write: () => void) => {
      packet = '';
      write();
      packets.push(packet);
    },
  };
  const writer = new BodyWriter(
    { ...res, ...asked } as unknown as BodyWriterResponse,
    {
      writeHead: () => (packet += 'HTTP/1.1 200 OK\r\n'),
      mustStayOpen: () => false,
      mayLeaveUnread: () => true,
      allSent: () => t.fail('it never asked'),
      ended: () => ends.push(stream.bytes),
      cutOff: () => t.fail('no reader is slow'),
    },
    new Backlog({ streamBytes: 1 << 30, totalBytes: 1 << 30 }),
  );
  const stream = new SseStream(writer, { add: queueMicrotask });
  return { stream, packets, ends };
}

const HEAD = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';

t.test('all that is written in one tick is sent in one packet', async (t) => {
  const { stream, packets, ends } = setup();
  stream.event('a');
  stream.comment('b');
  t.same(packets, []);
  await Promise.resolve();
  t.same(packets, [`${HEAD}9\r\ndata: a\n\n\r\n5\r\n: b\n\n\r\n`]);
  stream.event('c');
  stream.end('x;dur=1');
  t.equal(packets[1], '9\r\ndata: c\n\n\r\n0\r\nServer-Timing: x;dur=1\r\nDate: -\r\n\r\n');
  await Promise.resolve();
  t.equal(packets.length, 2, 'the planned flush finds nothing');
  t.same(ends, [stream.bytes]);
});

t.test('the head is sent though nothing follows', async (t) => {
  const { packets } = setup();
  await Promise.resolve();
  t.same(packets, [HEAD]);
});

t.test('after the end or a disconnect nothing happens', async (t) => {
  for (const how of ['end', 'abandon'] as const) {
    const { stream, packets, ends } = setup();
    stream.event('a');
    await Promise.resolve();
    stream[how]();
    const { bytes } = stream;
    const before = packets.length;
    stream.event('b');
    stream.comment('c');
    stream.end('x;dur=1');
    await Promise.resolve();
    t.equal(packets.length, before);
    t.equal(stream.bytes, bytes);
    t.equal(ends.length, how === 'end' ? 1 : 0);
  }
});

t.test('a line break throws', async (t) => {
  const { stream } = setup();
  for (const text of ['a\nb', 'a\rb']) {
    t.throws(() => stream.event(text), RangeError);
    t.throws(() => stream.comment(text), RangeError);
    t.throws(() => stream.end(text), RangeError);
  }
  t.equal(stream.bytes, 0);
});

t.test('a blank line follows a comment between frames, and none one before the first frame', async (t) => {
  const { stream, packets } = setup();
  stream.comment('a');
  stream.event('b');
  stream.comment('c');
  await Promise.resolve();
  t.same(packets, [`${HEAD}4\r\n: a\n\r\n9\r\ndata: b\n\n\r\n5\r\n: c\n\n\r\n`]);
});

t.test('whatever the text and the ticks, a strict parser reads the same frames', async (t) => {
  const line = fc
    .string({ unit: 'binary', maxLength: 400 })
    .map((text) => text.replace(/[\r\n\u0085\u2028\u2029]/g, ' '));
  const property = fc.asyncProperty(
    fc.array(fc.tuple(line, fc.boolean(), fc.boolean()), { maxLength: 20 }),
    fc.boolean(),
    async (frames, trailer) => {
      const { stream, packets } = setup();
      for (const [text, isEvent, wait] of frames) {
        if (isEvent) stream.event(text);
        else stream.comment(text);
        if (wait) await Promise.resolve();
      }
      stream.end(trailer ? 'x;dur=1' : undefined);
      await Promise.resolve();
      const bytes = Buffer.from(packets.join(''));
      const { response, length } = parse(bytes, false)!;
      const first = frames.findIndex(([, isEvent]) => isEvent);
      const expected = frames.map(([text, isEvent], i) =>
        isEvent ? `data: ${text}\n\n` : `: ${text}${first < 0 || i < first ? '\n' : '\n\n'}`,
      );
      const got = response.chunks.slice(0, trailer ? undefined : -1);
      const size =
        bytes.length - HEAD.length - bytes.subarray(bytes.lastIndexOf(trailer ? '0\r\n' : '3c\r\n: \r\nDate')).length;
      return (
        JSON.stringify(got) === JSON.stringify(expected) &&
        length === bytes.length &&
        stream.bytes === size &&
        (response.trailers[0]?.[0] === 'Server-Timing') === trailer &&
        (trailer || BARE_END.test(response.chunks.at(-1) ?? ''))
      );
    },
  );
  await t.resolves(fc.assert(property));
});

t.test(
  'sent data is collected with the young generation, although several collections pass between two packets',
  async (t) => {
    const sent = { send: () => undefined, end: () => undefined, unread: () => 0 };
    const streams = Array.from({ length: 100 }, () => new SseStream(sent, { add: queueMicrotask }));
    const collectYoung = youngCollector();
    const rounds = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i++) {
        for (const stream of streams) {
          stream.event(Buffer.alloc(50_000, 'x').toString('latin1'));
          await Promise.resolve();
        }
        // What is alive in two of them becomes old.
        for (let collections = 0; collections < 3; collections++) collectYoung();
      }
    };
    await rounds(2);
    // 100 MB are sent.
    const old = await grownOld(async (look) => {
      for (let i = 0; i < 20; i++) {
        await rounds(1);
        look();
      }
    });
    t.ok(old < 20_000_000, `${old} bytes reached the old generation`);
  },
);
