import t from 'tap';
import { RecentTokens } from '../../../../engine/scheduler/reply.js';

t.test('finds the tokens of a text', (t) => {
  const recent = new RecentTokens();
  const say = ['<tool', '_call>', ' é.<', 'tool', '', '_call', '>\n'];
  say.forEach((text, i) => recent.push(i, Buffer.from(text)));
  t.same(recent.since('<tool_call>'), { tokens: [2, 3, 4, 5, 6], before: ' é.' }, 'the last one');
  t.equal(recent.since('<other>'), undefined);
  t.end();
});

t.test('keeps no more than it needs', (t) => {
  const recent = new RecentTokens();
  recent.push(0, Buffer.from('<mark>'));
  for (let i = 1; i <= 1018; i++) recent.push(i, Buffer.from('x'));
  t.same(recent.since('<mark>')?.tokens.length, 1019, '1,024 bytes');
  for (let i = 0; i < 6; i++) recent.push(i, Buffer.from('x'));
  t.equal(recent.since('<mark>'), undefined, 'and then the oldest token is removed');
  t.end();
});
