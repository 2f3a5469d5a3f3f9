import fc from 'fast-check';
import t from 'tap';
import { Marking, SpecialTexts, unusedMark } from '../../../engine/prompt/data-text.js';

const SPECIALS = ['<|im_start|>', '<|im_end|>', '</s>', '<think>', '\u{1f600}x', 'ab', 'bcd'];

t.test('text without special text is unchanged', async (t) => {
  const specials = new SpecialTexts(SPECIALS);
  t.same(specials.breakUp('plain < text | with > signs'), ['plain < text | with > signs']);
  t.equal(new Marking(specials, '\ue000').marked('plain < text'), 'plain < text');
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

t.test('special texts without a mark are split, and marks are taken out', async (t) => {
  const mark = '\ue000';
  const marking = new Marking(new SpecialTexts(SPECIALS), mark);
  const own = marking.marked('<think>\u{1f600}xabcd');
  t.equal(own, `<${mark}think>\u{1f600}${mark}xa${mark}b${mark}cd`);
  t.same(marking.pieces(own), ['<think>\u{1f600}xabcd']);
  t.same(marking.pieces(`a</s>${own}<think>`), ['a<', '/s><think>\u{1f600}xabcd<', 'think>']);
  t.same(marking.pieces('<\\ue000/s>'), ['<\\ue000/s>'], 'an escape of the mark is none');
});

t.test('the mark occurs nowhere in the value', async (t) => {
  t.equal(unusedMark(['\ue000\ue002', '</s>', { '\ue001': 1, a: [null, '\\uE003'] }]), '\ue004');
  const all = Array.from({ length: 0xf8ff - 0xe000 + 1 }, (_, at) => String.fromCharCode(0xe000 + at)).join('');
  t.equal(unusedMark([all]), undefined);
});

t.test('scanning takes linear time', async (t) => {
  const specials = new SpecialTexts(Array.from({ length: 5000 }, (_, at) => `<unused${at}>`));
  const started = process.cpuUsage();
  t.equal(specials.occursIn('<unused'.repeat(500_000)), false);
  const { user, system } = process.cpuUsage(started);
  t.ok(user + system < 5_000_000, '3.5 million characters against 5,000 texts');
});
