/** The lines of a stored file, read piece by piece. */

/** The longest line, bytes: 16 of them may be in memory at once for each model. */
export const LINE_BYTES = 8 * 1024 * 1024;

export interface FileLine {
  /** From 1; blank lines count. */
  readonly number: number;
  /** Without its line break. Undefined: it is longer than {@link LINE_BYTES}. */
  readonly bytes: Uint8Array | undefined;
}

const NEWLINE = 0x0a;

/** The lines that are not blank, in order. */
export async function* linesOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<FileLine> {
  let number = 1;
  let parts: Uint8Array[] = [];
  let length = 0;
  const line = (): FileLine | undefined => {
    const bytes = length > LINE_BYTES ? undefined : Buffer.concat(parts);
    [parts, length] = [[], 0];
    return bytes !== undefined && isBlank(bytes) ? undefined : { number, bytes };
  };
  const add = (part: Uint8Array): void => {
    length += part.length;
    if (length <= LINE_BYTES) parts.push(part);
    else parts = [];
  };
  for await (const piece of pieces) {
    let from = 0;
    for (let at = piece.indexOf(NEWLINE); at >= 0; at = piece.indexOf(NEWLINE, from)) {
      add(piece.subarray(from, at));
      from = at + 1;
      const found = line();
      if (found) yield found;
      number += 1;
    }
    // A copy, so that the end of a piece does not keep all of it in memory.
    add(Uint8Array.from(piece.subarray(from)));
  }
  const last = line();
  if (last) yield last;
}

/** Space alone: JSON's, of which a carriage return before the line break is a part. */
function isBlank(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d);
}
