import t from 'tap';
import { ReplyText } from '../../../engine/output/reply-text.js';

t.test('shows whole characters only, wherever the bytes are cut', (t) => {
  const text = 'a€😀\u{feff}z';
  const bytes = Buffer.from(text);
  for (let cut = 0; cut <= bytes.length; cut++) {
    const reply = new ReplyText([]);
    const pieces = [reply.push(bytes.subarray(0, cut)).content, reply.push(bytes.subarray(cut)).content];
    t.equal(pieces.join('') + reply.end().content, text);
    for (const piece of pieces) t.notMatch(piece, '\ufffd');
  }
  t.end();
});

t.test('drops an incomplete character at the end, keeps invalid bytes visible', (t) => {
  const cut = new ReplyText([]);
  t.equal(cut.push(Buffer.from([0x61, 0xf0, 0x9f])).content, 'a');
  t.equal(cut.end().content, '');
  const invalid = new ReplyText([]);
  t.equal(invalid.push(Buffer.from([0xff, 0x61])).content, '\ufffda');
  t.end();
});

t.test('finds a stop across tokens', (t) => {
  const reply = new ReplyText(['€€']);
  t.equal(reply.push(Buffer.from('x€').subarray(0, 3)).content, 'x');
  t.equal(reply.push(Buffer.from('x€').subarray(3)).content, '');
  t.equal(reply.push(Buffer.from('€!')).content, '');
  t.equal(reply.matchedStop, '€€');
  t.end();
});

t.test('a stop string applies to the content only', (t) => {
  const thought = { open: true, starts: ['<think>'], ends: ['</think>'], implicitEnds: [], headers: [] };
  const reply = new ReplyText(['.'], { thought });
  t.same(reply.push(Buffer.from('Hm. Hm')), { reasoning: 'Hm. Hm', content: '', calls: [] });
  t.equal(reply.isThinking(), true);
  t.equal(reply.matchedStop, undefined);
  t.same(reply.push(Buffer.from('</think>Yes. No')), { reasoning: '', content: 'Yes', calls: [] });
  t.equal(reply.isThinking(), false);
  t.equal(reply.matchedStop, '.');
  t.same(reply.end(), { reasoning: '', content: '', calls: [] });
  t.end();
});
