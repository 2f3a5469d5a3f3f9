/** Characters of UTF-8 that are read byte by byte. */

/**
 * Whether a character may have these bits, `before` without its latest byte, when it lacked so many bytes: no surrogate, none that is
 * written longer than it need be, and none beyond the last one. The second byte decides.
 */
export function isUtf8(before: number, bits: number, lacked: number): boolean {
  // Of four bytes.
  if (lacked === 3) return bits >= 0x10 && bits <= 0x10f;
  // Of three bytes: the third of four stands after more bits than a first of three has.
  return lacked !== 2 || before > 0xf || (bits >= 0x20 && (bits < 0x360 || bits > 0x37f));
}

/** The first and the last character that may begin with these bits. `lacks`: bytes that are still to come, at least one. */
export function begunCharacters(bits: number, lacks: number): readonly [first: number, last: number] {
  const low = bits << (6 * lacks);
  const high = low | ((1 << (6 * lacks)) - 1);
  // The first byte of a character of three bytes, and of four: it is not written longer than it need be.
  const least = lacks === 2 ? 0x800 : lacks === 3 ? 0x10000 : 0;
  // Surrogates follow.
  const most = lacks === 2 && bits === 0xd ? 0xd7ff : high;
  return [low === 0 ? least : low, most];
}
