/**
 * Random texts. fast-check's units `binary` and `grapheme` make a map of a million characters in each process that uses them, which takes
 * a second of processor time.
 */
import fc from 'fast-check';

interface Lengths {
  readonly minLength?: number;
  readonly maxLength?: number;
}

/** Any code point that a text may have alone. */
const CODE_POINT = fc
  .oneof(fc.integer({ min: 0, max: 0xd7ff }), fc.integer({ min: 0xe000, max: 0x10ffff }))
  .map((code) => String.fromCodePoint(code));

/** Of scripts whose characters take one to four bytes; and some that are several code points. */
const CHARACTER = fc.oneof(
  fc.integer({ min: 0x20, max: 0x7e }).map((code) => String.fromCodePoint(code)),
  ...([0xc0, 0x3b1, 0x5d0, 0x4e00, 0xac00, 0x1f300] as const).map((least) =>
    fc.nat(20).map((more) => String.fromCodePoint(least + more)),
  ),
  fc.constantFrom('e\u0301', 'n\u0303', '🇫🇷', '👩‍👩‍👧', '각'),
);

/** What every object of JavaScript has, and what functions have. */
const NAMES = ['__proto__', 'constructor', 'toString', 'valueOf', 'hasOwnProperty', 'length', 'name', 'key'];

const textsOf =
  (unit: fc.Arbitrary<string>) =>
  (lengths: Lengths = {}): fc.Arbitrary<string> => {
    const { minLength = 0, maxLength = Infinity } = lengths;
    const names = NAMES.filter(({ length }) => length >= minLength && length <= maxLength);
    const text = fc.string({ ...lengths, unit });
    return names.length === 0
      ? text
      : fc.oneof({ weight: 9, arbitrary: text }, { weight: 1, arbitrary: fc.constantFrom(...names) });
  };

/** Texts of any code points. `maxLength`: in these. */
export const anyText = textsOf(CODE_POINT);

/** Texts as people write them. `maxLength`: in characters. */
export const plainText = textsOf(CHARACTER);
