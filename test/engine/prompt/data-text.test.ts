import fc from 'fast-check';
import t from 'tap';
import { guard, SpecialTexts } from '../../../engine/prompt/data-text.js';

const SPECIALS = ['<|im_start|>', '<|im_end|>', '</s>', '<think>', '\u{1f600}x', 'ab', 'bcd'];

t.test('text without special text is unchanged', async (t) => {
  const specials = new SpecialTexts(SPECIALS);
  t.same(specials.breakUp('plain < text | with > signs'), ['plain < text | with > signs']);
  const value = { messages: [{ role: 'user', content: 'plain' }], n: 1, none: null };
  const guarded = guard(value, specials);
  t.ok(guarded.kind === 'ok' && guarded.value === value && guarded.mark === undefined);
});

t.test('every special text is split, overlapping ones and those after a surrogate pair too', async (t) => {
  const specials = new SpecialTexts(SPECIALS);
  t.same(specials.breakUp('a</s>b'), ['a<', '/s>b']);
  t.same(specials.breakUp('abcd'), ['a', 'b', 'cd']);
  t.same(specials.breakUp('\u{1f600}x'), ['\u{1f600}', 'x']);
  const texts = fc.array(
    fc.oneof(fc.constantFrom(...SPECIALS), fc.constantFrom('<', '|', 'a', 'b', 'c', 'd', '>', ' ')),
  );
  fc.assert(
    fc.property(texts, (parts) => {
      const text = parts.join('');
      const pieces = specials.breakUp(text);
      return pieces.join('') === text && pieces.every((piece) => !SPECIALS.some((special) => piece.includes(special)));
    }),
  );
});

t.test('single characters and white space are no markers', async (t) => {
  const specials = new SpecialTexts(['õ', '\u{1f600}', '    ', '\u2581\u2581', '\n\n', '']);
  t.equal(specials.occursIn('õ     \u{1f600} \u2581\u2581 \n\n'), false);
});

t.test('all strings of a value are marked, names of members included', async (t) => {
  const guarded = guard({ '</s>': [{ a: 'x</s>', n: 1, none: null, yes: true }] }, new SpecialTexts(SPECIALS));
  const mark = '\ue000';
  t.same(guarded, {
    kind: 'ok',
    mark,
    value: { [`<${mark}/s>`]: [{ a: `x<${mark}/s>`, n: 1, none: null, yes: true }] },
  });
});

t.test('the mark occurs nowhere in the value', async (t) => {
  const specials = new SpecialTexts(SPECIALS);
  t.match(guard(['\ue000\ue002', '</s>', { '\ue001': 1 }], specials), { mark: '\ue003' });
  const all = Array.from({ length: 0xf8ff - 0xe000 + 1 }, (_, at) => String.fromCharCode(0xe000 + at)).join('');
  t.same(guard([all, '</s>'], specials), { kind: 'unmarkable' });
});

t.test('nesting deeper than the stack is refused and does not throw', async (t) => {
  let deep: unknown = '</s>';
  for (let level = 0; level < 200_000; level++) deep = [deep];
  t.same(guard(deep, new SpecialTexts(SPECIALS)), { kind: 'unmarkable' });
});

t.test('scanning takes linear time', async (t) => {
  const specials = new SpecialTexts(Array.from({ length: 5000 }, (_, at) => `<unused${at}>`));
  const started = performance.now();
  t.equal(specials.occursIn('<unused'.repeat(500_000)), false);
  t.ok(performance.now() - started < 5000, '3.5 million characters against 5,000 texts');
});
