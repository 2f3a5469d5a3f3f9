import t from 'tap';
import { BYTE_CHARACTERS, learnMerges, toByteCharacters } from '../../../bench/models/byte-pairs.js';

t.test('GPT-2’s alphabet: 256 distinct visible characters, the documented ones at their bytes', (t) => {
  t.equal(new Set(BYTE_CHARACTERS).size, 256);
  t.ok(BYTE_CHARACTERS.every((character) => /^[\p{L}\p{N}\p{P}\p{S}]$/u.test(character)));
  t.equal(toByteCharacters(' \n\tA~'), 'ĠĊĉA~');
  t.equal(toByteCharacters('é\u007f'), 'Ã©ġ');
  t.same(
    [0x00, 0xa0, 0xad, 0xff].map((byte) => BYTE_CHARACTERS[byte]),
    ['Ā', 'ł', 'Ń', 'ÿ'],
  );
  t.end();
});

t.test('merges the most frequent pair first, ties in sort order, until each word is one piece', (t) => {
  const learnt = learnMerges([
    { text: 'abc', weight: 1 },
    { text: 'bc', weight: 2 },
    { text: ' a', weight: 1 },
    { text: 'aaa', weight: 0.25 },
  ]);
  t.same(learnt.merges, ['b c', 'a bc', 'Ġ a', 'a a', 'aa a']);
  t.same(learnt.pieces, ['bc', 'abc', 'Ġa', 'aa', 'aaa']);
  t.same(learnMerges([]), { merges: [], pieces: [] });
  t.end();
});

t.test('a piece that results from two different pairs is listed once', (t) => {
  const { merges, pieces } = learnMerges([
    { text: 'ab', weight: 5 },
    { text: 'bc', weight: 4 },
    { text: 'abc', weight: 0 },
    { text: 'xbc', weight: 9 },
  ]);
  t.equal(new Set(pieces).size, pieces.length);
  t.ok(merges.length >= pieces.length);
  t.end();
});
