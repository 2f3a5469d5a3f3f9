import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import * as fc from 'fast-check';
import assert from 'node:assert/strict';
import t from 'tap';
import { FrameReader, pack, Link } from '../../../engine/protocol/link.js';
import { LinkedChild } from '../../support/linked-child.js';
import { rounds } from '../../support/long-form.js';
import { anyText } from '../../support/texts.js';

const ECHO = fileURLToPath(new URL('../../support/link-echo.js', import.meta.url));

const json = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    anyText(),
    fc.integer(),
    fc.boolean(),
    fc.constant(null),
    fc.uint8Array(),
    fc.uint32Array(),
    fc.float64Array(),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(fc.stringMatching(/^[a-z]{1,6}$/), tie('value'), { maxKeys: 4, noNullPrototype: true }),
  ),
})).value;
const message = fc.record({ v: fc.integer(), kind: fc.string(), rest: json }, { noNullPrototype: true });

function read(...pieces: readonly Uint8Array[]): unknown[] {
  const heard: unknown[] = [];
  const reader = new FrameReader((raw) => heard.push(raw));
  for (const piece of pieces) {
    const own = Uint8Array.from(piece);
    reader.push(own);
    assert(
      own.every((byte) => byte === 0),
      'what was read is overwritten',
    );
  }
  return heard;
}

function bytesOf(...messages: readonly object[]): Buffer {
  return Buffer.concat(messages.flatMap((one) => pack(one)));
}

t.test('messages arrive whole and in order, however their bytes are cut', async () => {
  fc.assert(
    fc.property(fc.array(message, { minLength: 1, maxLength: 5 }), fc.infiniteStream(fc.nat(90)), (sent, sizes) => {
      const bytes = bytesOf(...sent);
      const pieces: Uint8Array[] = [];
      for (let at = 0; at < bytes.length;) {
        const size = Number(sizes.next().value) + 1;
        // The reader must copy a piece before it returns, so each is overwritten afterwards.
        pieces.push(Uint8Array.from(bytes.subarray(at, at + size)));
        at += size;
      }
      const heard: unknown[] = [];
      const reader = new FrameReader((raw) => heard.push(raw));
      for (const piece of pieces) {
        reader.push(piece);
        piece.fill(255);
      }
      assert.deepEqual(heard, sent);
    }),
    { numRuns: rounds({ short: 20, long: 300 }) },
  );
});

t.test('what a message keeps on its way', async (t) => {
  const undefinedLeft = { kind: 'x', gone: undefined, text: 'a\u2028\ud800b 😀' };
  t.strictSame(read(bytesOf(undefinedLeft)), [{ kind: 'x', text: undefinedLeft.text }]);
  const [heard] = read(bytesOf({ tokens: Uint32Array.of(1, 2, 3), none: new Float64Array(0) })) as [
    { tokens: Uint32Array; none: Float64Array },
  ];
  t.equal(heard.tokens.buffer.byteLength, 12, 'its own memory, none of its neighbours');
  t.ok(heard.none instanceof Float64Array);
  t.strictSame(read(bytesOf({ tokens: new Uint32Array([9, 8, 7]).subarray(1) })), [{ tokens: Uint32Array.of(8, 7) }]);
});

t.test('a Buffer arrives as its bytes, and the sent message is unchanged', async (t) => {
  const bytes = Buffer.from('abc').subarray(1);
  const message = { sent: { route: 'chat', bytes }, list: [{ tokens: Uint32Array.of(1) }, 2] };
  const [sent, first] = [message.sent, message.list[0]];
  t.strictSame(read(bytesOf(message)), [
    { sent: { route: 'chat', bytes: Uint8Array.of(98, 99) }, list: [{ tokens: Uint32Array.of(1) }, 2] },
  ]);
  t.equal(message.sent, sent);
  t.equal(message.sent.bytes, bytes);
  t.equal(message.list[0], first);
  t.strictSame(first, { tokens: Uint32Array.of(1) });
});

t.test('an array of a kind that the other side could not read is not sent', async (t) => {
  const heard = [Uint8Array, Uint32Array, Float32Array, Float64Array].map((Kind) => read(bytesOf({ of: Kind.of(1) })));
  t.strictSame(
    heard.flat(),
    [Uint8Array, Uint32Array, Float32Array, Float64Array].map((Kind) => ({ of: Kind.of(1) })),
  );
  for (const array of [Int32Array.of(1, -1), Uint16Array.of(1), BigInt64Array.of(1n), new DataView(new ArrayBuffer(8))])
    t.throws(() => pack({ in: [{ array }] }), TypeError);
});

t.test('large arrays are not copied when sent', async (t) => {
  const bytes = new Uint8Array(200_000).fill(7);
  const parts = pack({ first: bytes, second: Uint32Array.of(1) });
  t.equal(parts.length, 3);
  t.equal(parts[1]?.buffer, bytes.buffer);
  t.strictSame(read(...parts), [{ first: bytes, second: Uint32Array.of(1) }]);
});

t.test('long arrays are put into place as they come, however their bytes are cut', async (t) => {
  const long = {
    kind: 'long',
    first: Float32Array.from({ length: 30_000 }, (_, i) => i / 3),
    none: new Uint8Array(0),
    inside: [{ second: Uint8Array.from({ length: 70_001 }, (_, i) => i) }],
  };
  const short = { kind: 'short', tokens: Uint32Array.of(1, 2) };
  const bytes = bytesOf(short, long, short, long);
  for (const size of [997, 65_536, 200_000, bytes.length]) {
    const pieces = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
      bytes.subarray(i * size, (i + 1) * size),
    );
    t.strictSame(read(...pieces), [short, long, short, long], `${size} bytes at a time`);
  }
});

t.test('long arrays that are not what the frame says', async (t) => {
  const frame = bytesOf({ a: new Uint8Array(70_000), b: new Uint8Array(70_000) });
  const changes = { '70000,': '70001,', '"bytes":70000': '"bytes":60000', '"u8"': '"u9"' };
  for (const [text, other] of Object.entries(changes)) {
    const changed = Buffer.from(frame);
    const at = changed.lastIndexOf(text);
    t.ok(at > 0, text);
    changed.write(other, at);
    t.strictSame(read(...[0, 30_000, 60_000].map((from) => changed.subarray(from, from + 30_000))), [undefined], text);
  }
});

t.test('an invalid frame is reported once, and nothing after it is read', async (t) => {
  const good = bytesOf({ kind: 'good' });
  const changed = (change: (frame: Buffer) => void): Buffer => {
    const frame = bytesOf({ tokens: Uint32Array.of(1, 2) });
    change(frame);
    return frame;
  };
  const cases: Record<string, Buffer> = {
    'longer than anything': changed((frame) => frame.writeUInt32LE(0xffffffff, 0)),
    'shorter than its head': changed((frame) => frame.writeUInt32LE(3, 0)),
    'text longer than the frame': changed((frame) => frame.writeUInt32LE(frame.length, 4)),
    'no JSON': changed((frame) => frame.write('x', 12)),
    'missing arrays': Buffer.concat([
      Buffer.from([40, 0, 0, 0, 32, 0, 0, 0, 1, 0, 0, 0]),
      Buffer.from('{"a":{"$":"u32","at":8,"bytes":8}}'.slice(0, 32)),
    ]),
    'an array longer than the frame': changed((frame) => frame.write('9', frame.lastIndexOf('8}'))),
    'an array that ends after it': changed((frame) => frame.write('4', frame.indexOf('0,"bytes"'))),
    'an array of no kind': changed((frame) => frame.write('u99', frame.indexOf('u32'))),
  };
  for (const [name, bad] of Object.entries(cases)) {
    t.strictSame(read(good, bad, good), [{ kind: 'good' }, undefined], name);
    t.strictSame(
      read(...Array.from(Buffer.concat([good, bad, good]), (byte) => Uint8Array.of(byte))).slice(0, 2),
      [{ kind: 'good' }, undefined],
      `${name}, byte by byte`,
    );
  }
});

t.test('a child and its parent', async (t) => {
  const child = new LinkedChild(ECHO);
  const exit = once(child.process, 'exit');
  const sent = { text: 'ä', tokens: new Uint32Array(100_000).fill(5) };
  child.send(sent);
  const [echoed] = (await once(child, 'message')) as [unknown];
  t.strictSame(echoed, sent);
  const many = Array.from({ length: 1000 }, (_, i) => ({ i }));
  const heard: unknown[] = [];
  const all = new Promise<void>((resolve) => {
    child.on('message', (raw) => {
      if (heard.push(raw) === many.length) resolve();
    });
  });
  for (const each of many) child.send(each);
  await all;
  t.strictSame(heard, many, 'in their order');
  child.leave();
  t.strictSame(await exit, [0, null], 'it ends with its parent');
  child.send({ kind: 'unread' });
});

t.test('a killed child closes the link', async (t) => {
  const child = spawn(process.execPath, [ECHO], { stdio: ['ignore', 'ignore', 'inherit', 'pipe'] });
  const closed = new Promise<void>((resolve) => {
    Link.toChild(child, { message: () => t.fail('nothing was sent'), closed: resolve });
  });
  child.kill('SIGKILL');
  await closed;
});

t.test('no link if none was created', async (t) => {
  const child = spawn(process.execPath, ['--version'], { stdio: 'ignore' });
  const exit = once(child, 'exit');
  t.throws(() => Link.toChild(child, { message: () => undefined, closed: () => undefined }), /without a link/);
  const [code] = (await once(spawn(process.execPath, [ECHO], { stdio: 'ignore' }), 'exit')) as [number];
  t.not(code, 0, 'a child without a link fails at once');
  await exit;
});
