import t from 'tap';
import { ReplyText } from '../../../engine/output/reply-text.js';

t.test('shows whole characters only, wherever the bytes are cut', (t) => {
  const text = 'a€😀\u{feff}z';
  const bytes = Buffer.from(text);
  for (let cut = 0; cut <= bytes.length; cut++) {
    const reply = new ReplyText([]);
    const pieces = [reply.push(bytes.subarray(0, cut)), reply.push(bytes.subarray(cut))];
    t.equal(pieces.join('') + reply.end(), text);
    for (const piece of pieces) t.notMatch(piece, '\ufffd');
  }
  t.end();
});

t.test('drops a character that was never finished, keeps invalid bytes visible', (t) => {
  const cut = new ReplyText([]);
  t.equal(cut.push(Buffer.from([0x61, 0xf0, 0x9f])), 'a');
  t.equal(cut.end(), '');
  const invalid = new ReplyText([]);
  t.equal(invalid.push(Buffer.from([0xff, 0x61])), '\ufffda');
  t.end();
});

t.test('finds a stop across tokens', (t) => {
  const reply = new ReplyText(['€€']);
  t.equal(reply.push(Buffer.from('x€').subarray(0, 3)), 'x');
  t.equal(reply.push(Buffer.from('x€').subarray(3)), '');
  t.equal(reply.push(Buffer.from('€!')), '');
  t.equal(reply.matchedStop, '€€');
  t.end();
});
