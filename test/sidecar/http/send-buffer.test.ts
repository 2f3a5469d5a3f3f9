import fc from 'fast-check';
import t from 'tap';
import { Blocks, BLOCK_BYTES, SendBuffer } from '../../../sidecar/http/send-buffer.js';

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

t.test('pushed text is taken in order, byte for byte, in parts of any size, and no block is lost', (t) => {
  const text = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 50 }),
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
    { numRuns: 300 },
  );
  t.end();
});

t.test('no reader’s data stays in a block that is kept', (t) => {
  const blocks = new Blocks();
  const buffer = new SendBuffer(blocks);
  buffer.push('secret'.repeat(1000));
  buffer.clear();
  t.ok(blocks.acquire().every((byte) => byte === 0));
  t.end();
});

t.test('blocks are reused, up to a number', (t) => {
  const blocks = new Blocks();
  const first = blocks.acquire();
  blocks.release(first);
  t.equal(blocks.acquire(), first);
  const lent = Array.from({ length: 3000 }, () => blocks.acquire());
  for (const block of lent) blocks.release(block);
  const again = Array.from({ length: 3000 }, () => blocks.acquire());
  const known = new Set(lent);
  t.equal(again.filter((block) => known.has(block)).length, 2048);
  t.end();
});
