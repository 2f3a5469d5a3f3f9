import t from 'tap';
import { EventStream } from '../../../engine/remote/event-stream.js';

const bytes = (text: string): Buffer => Buffer.from(text);

t.test('frames are read from any pieces, of lines up to the bound', (t) => {
  const line = 'data: {"text":"é🙂"}';
  for (const size of [1, 2, 7, 100]) {
    const stream = new EventStream(Buffer.byteLength(line));
    const all = bytes(`\uFEFF: ping\r\n\n${line}\n\ndata: [DONE]\n`);
    const frames = [];
    for (let at = 0; at < all.length; at += size) frames.push(...stream.push(all.subarray(at, at + size)));
    t.strictSame(frames, [{ kind: 'json', value: { text: 'é🙂' } }, { kind: 'done' }], `of ${size} bytes`);
    t.equal(stream.unfinished, false);
  }
  t.end();
});

t.test('a longer line ends the stream, whether it has an end or not', (t) => {
  const whole = new EventStream(10);
  t.strictSame(whole.push(bytes('data: 1\n0123456789\n')), [{ kind: 'json', value: 1 }]);
  t.strictSame(whole.push(bytes('data: 2\n0123456789x\ndata: 3\n')), [{ kind: 'json', value: 2 }, { kind: 'long' }]);
  const endless = new EventStream(10);
  t.strictSame(endless.push(bytes('0123456789')), []);
  t.equal(endless.unfinished, true);
  t.strictSame(endless.push(bytes('x')), [{ kind: 'long' }]);
  t.end();
});
