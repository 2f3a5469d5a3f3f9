import assert from 'node:assert/strict';
import t from 'tap';
import fc from 'fast-check';
import { joined } from '../../../engine/scheduler/outbox.js';
import type { Output } from '../../../engine/protocol/jobs.js';

type Piece = Extract<Output, { kind: 'piece' }>;

const piece = (id: number, text: string, tokens: number, more: Partial<Piece> = {}): Piece => ({
  id,
  kind: 'piece',
  choice: 0,
  channel: 'content',
  text,
  tokens,
  ...more,
});
const call = (id: number): Output => ({ id, kind: 'call', choice: 0, index: 0, arguments: '{', tokens: 2 });

t.test('pieces of one reply are joined, also with outputs of other replies in between', (t) => {
  t.same(joined([piece(1, 'a', 1), piece(2, 'x', 4), piece(1, 'b', 2), piece(2, 'y', 5), piece(1, 'c', 4)]), [
    piece(1, 'abc', 4),
    piece(2, 'xy', 5),
  ]);
  t.same(joined([]), []);
  t.end();
});

t.test('channels, choices and other outputs are not joined', (t) => {
  const thought = piece(1, 't', 1, { channel: 'reasoning' });
  const other = piece(1, 'o', 1, { choice: 1 });
  const apart = [thought, piece(1, 'a', 2), call(1), piece(1, 'b', 3)];
  t.same(joined(apart), apart);
  t.same(joined([piece(1, 'a', 1), other, piece(1, 'b', 2)]), [piece(1, 'ab', 2), other]);
  const done = [piece(1, 'a', 1), { id: 1, kind: 'done' } as const, piece(1, 'b', 1)];
  t.same(joined(done), done, 'not across an end');
  t.end();
});

t.test('no text is lost or moved within its reply', (t) => {
  const output = fc.oneof(
    { weight: 6, arbitrary: fc.record({ id: fc.nat(2), choice: fc.nat(1), text: fc.string({ minLength: 1 }) }) },
    { weight: 1, arbitrary: fc.record({ id: fc.nat(2) }) },
  );
  fc.assert(
    fc.property(fc.array(output, { maxLength: 40 }), (made) => {
      const outputs = made.map((each, i): Output =>
        'text' in each
          ? piece(each.id, each.text, i, { choice: each.choice, channel: each.text < 'a' ? 'content' : 'reasoning' })
          : call(each.id),
      );
      const said = (all: readonly Output[]): Record<string, string> => {
        const texts: Record<string, string> = {};
        for (const each of all) {
          if (!('choice' in each)) continue;
          const key = `${each.id} ${each.choice}`;
          const of = each.kind === 'piece' ? each.text.replaceAll(/./gsu, (c) => `${each.channel[0] ?? ''}${c}`) : '()';
          texts[key] = (texts[key] ?? '') + of;
        }
        return texts;
      };
      assert.deepEqual(said(joined(outputs)), said(outputs));
    }),
  );
  t.end();
});
