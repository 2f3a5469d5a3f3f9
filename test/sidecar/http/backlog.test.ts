import fc from 'fast-check';
import t from 'tap';
import {
  Backlog,
  Blocks,
  BLOCK_BYTES,
  SendBuffer,
  type Backlogged,
  type CutReason,
} from '../../../sidecar/http/backlog.js';
import { BodyWriter, type BodyWriterResponse } from '../../../sidecar/http/body-writer.js';
import { chunk } from '../../../sidecar/http/chunked.js';
import { FileReply, type FileResponse } from '../../../sidecar/http/file-reply.js';
import { rounds } from '../../support/long-form.js';
import { anyText } from '../../support/texts.js';

/** A stream whose reader has `unread` bytes left, which is known once it was asked. */
class Stream implements Backlogged {
  readonly id: number;
  buffered = 0;
  usesBackpressure = false;
  cutFor: CutReason | undefined;
  readonly owner = { cutOff: (reason: CutReason): void => void (this.cutFor = reason) };
  readonly #book: Backlog;
  readonly #unread: number;

  constructor(book: Backlog, unread = Infinity) {
    this.id = book.newId();
    this.#book = book;
    this.#unread = unread;
  }

  write(bytes: number): this {
    return this.#set(this.buffered + bytes);
  }

  useBackpressure(): void {
    this.usesBackpressure = true;
    this.#set(Math.min(this.buffered, this.#unread));
  }

  abandon(): void {
    this.#set(0);
  }

  #set(bytes: number): this {
    const delta = bytes - this.buffered;
    this.buffered = bytes;
    if (delta !== 0) this.#book.changed(this, delta);
    return this;
  }
}

t.test('a stream is asked past half of its share, and cut off past all of it', async (t) => {
  const book = new Backlog({ streamBytes: 100, totalBytes: 1000 });
  const stream = new Stream(book).write(50);
  t.notOk(stream.usesBackpressure);
  stream.write(1);
  t.ok(stream.usesBackpressure);
  stream.write(49);
  t.equal(stream.cutFor, undefined);
  t.equal(book.bytes, 100);
  stream.write(1);
  t.equal(stream.cutFor, 'stream');
  t.equal(book.bytes, 0);
});

t.test(
  'past the total, streams with the highest bound are asked, and the one that is really furthest behind is cut off',
  async (t) => {
    const book = new Backlog({ streamBytes: 100, totalBytes: 100 });
    const reading = new Stream(book, 0).write(45);
    const behind = new Stream(book).write(40);
    const other = new Stream(book).write(16);
    t.ok(reading.usesBackpressure, 'the most bytes, but all were read');
    t.notOk(behind.usesBackpressure, 'that was enough');
    t.equal(book.bytes, 56);
    other.write(30);
    const third = new Stream(book).write(30);
    t.equal(other.cutFor, 'total');
    t.same([reading.cutFor, behind.cutFor, third.cutFor], [undefined, undefined, undefined]);
    t.equal(book.bytes, 70);
  },
);

t.test('whatever is written, the bounds are kept and no reading connection is closed', async () => {
  const writes = fc.array(fc.tuple(fc.nat(7), fc.integer({ min: 1, max: 60 })), { maxLength: 200 });
  fc.assert(
    fc.property(writes, (writes) => {
      const book = new Backlog({ streamBytes: 100, totalBytes: 300 });
      const streams = Array.from({ length: 8 }, (_, i) => new Stream(book, i % 2 === 0 ? 0 : Infinity));
      return writes.every(([i, bytes]) => {
        const stream = streams[i]!;
        // Once asked, a reader that reads has nothing left.
        if (stream.cutFor === undefined && !(stream.usesBackpressure && i % 2 === 0)) stream.write(bytes);
        const all = streams.reduce((sum, { buffered }) => sum + buffered, 0);
        const fit = streams.every(({ buffered }) => buffered <= 100);
        return book.bytes === all && all <= 300 && fit && streams.every(({ cutFor }, j) => j % 2 === 1 || !cutFor);
      });
    }),
  );
});

t.test('a stream that was cut off or abandoned counts nothing more, and is not cut off again', async (t) => {
  const book = new Backlog({ streamBytes: 1 << 20, totalBytes: 1000 });
  const cuts: CutReason[] = [];
  const res = {
    cork: (write: () => void) => write(),
    onWritable: () => undefined,
    writeHeader: () => undefined,
    getWriteOffset: () => 0,
    tryEnd: () => [false, false],
    close: () => t.fail('its owner closes it'),
  };
  const owner = {
    writeHead: () => undefined,
    mustStayOpen: () => false,
    mayLeaveUnread: () => true,
    allSent: () => undefined,
    ended: () => t.fail('it is not complete'),
    cutOff: (reason: CutReason) => cuts.push(reason),
  };
  const long = chunk('data', 'x'.repeat(1 << 14));
  for (const write of ['send', 'end'] as const) {
    const writer = new BodyWriter(res as unknown as BodyWriterResponse, owner, book);
    writer.send([chunk('data', 'x'.repeat(980))]);
    // It asks the reader before so long a chunk, and the bytes that ask are too many.
    writer[write]([long]);
    t.same(cuts.splice(0), ['total'], write);
    t.equal(book.bytes, 0, write);
  }
  const reply = new FileReply(res as unknown as FileResponse, owner, book, { length: 3000, secure: false });
  await reply.send(
    // The caller disconnects while a piece is read.
    (async function* () {
      reply.abandon();
      yield await Promise.resolve(new Uint8Array(1001));
    })(),
  );
  t.same(cuts, []);
  t.equal(book.bytes, 0);
});

/** Counts the blocks that are in use. */
class CountedBlocks extends Blocks {
  out = 0;

  override acquire(): Uint8Array {
    this.out += 1;
    // Its previous content must not be sent.
    return super.acquire().fill(0xff);
  }

  override release(block: Uint8Array): void {
    this.out -= 1;
    super.release(block);
  }
}

t.test('pushed text is taken in order, byte for byte, in parts of any size, and no block is lost', async () => {
  const text = fc.oneof(
    anyText({ maxLength: 50 }),
    // Around a block’s end, with characters of one to four bytes.
    fc.tuple(fc.integer({ min: 0, max: 8 }), fc.constantFrom('x', 'é', '€', '😀')).map(([less, character]) => {
      const room = BLOCK_BYTES - less;
      return 'x'.repeat(room) + character.repeat(3);
    }),
    fc.constantFrom('€'.repeat(BLOCK_BYTES), '😀'.repeat(BLOCK_BYTES)),
  );
  const act = fc.oneof(
    text.map((pushed) => ({ pushed })),
    fc.double({ min: 0, max: 1, noNaN: true }).map((share) => ({ share })),
  );
  fc.assert(
    fc.property(fc.array(act, { maxLength: 20 }), (acts) => {
      const blocks = new CountedBlocks();
      const held = new SendBuffer(blocks);
      let expected = Buffer.alloc(0);
      for (const act of acts) {
        if ('pushed' in act) {
          held.push(act.pushed);
          expected = Buffer.concat([expected, Buffer.from(act.pushed)]);
        } else {
          const first = held.first();
          if ((first === undefined) !== (expected.length === 0)) return false;
          if (first === undefined) continue;
          const bytes = Math.round(act.share * first.length);
          if (!expected.subarray(0, first.length).equals(first)) return false;
          held.shift(bytes);
          expected = expected.subarray(bytes);
        }
        if (held.bytes !== expected.length) return false;
        // Two partial blocks, and up to three bytes per whole one in which no character fits.
        if (blocks.out > Math.ceil(expected.length / (BLOCK_BYTES - 3)) + 1) return false;
      }
      held.clear();
      return held.bytes === 0 && held.first() === undefined && blocks.out === 0;
    }),
    { numRuns: rounds({ short: 20, long: 300 }) },
  );
});

t.test('no reader’s data stays in a block that is kept', async (t) => {
  const blocks = new Blocks();
  const buffer = new SendBuffer(blocks);
  buffer.push('secret'.repeat(1000));
  buffer.clear();
  t.ok(blocks.acquire().every((byte) => byte === 0));
});

t.test('blocks are reused, up to a number', async (t) => {
  const blocks = new Blocks();
  const first = blocks.acquire();
  blocks.release(first);
  t.equal(blocks.acquire(), first);
  const lent = Array.from({ length: 3000 }, () => blocks.acquire());
  for (const block of lent) blocks.release(block);
  const again = Array.from({ length: 3000 }, () => blocks.acquire());
  const known = new Set(lent);
  t.equal(again.filter((block) => known.has(block)).length, 2048);
});
