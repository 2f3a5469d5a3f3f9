/**
 * Looks for secrets in texts in the shapes that they take on their way out: whole or cut, in another case, with the escapes
 * of JSON and of URLs, with zero bytes between, in hexadecimal, in base64.
 */

/** A secret is looked for in pieces of so many characters, so that one that was cut shows too. */
export const PIECE = 12;

/** Characters shown on each side of what was found. */
const AROUND = 40;

/** What to look for, made once for any number of texts. */
export class LeakSearch {
  /** In lower case. */
  readonly #folded = new Set<string>();
  /** Where case counts. */
  readonly #exact = new Set<string>();

  /**
   * `secrets` are looked for in pieces, `phrases` whole: a piece of plain words could be anybody's. Throws on what is too
   * short to be told from chance.
   */
  constructor(secrets: Iterable<string>, phrases: Iterable<string> = []) {
    for (const secret of secrets) for (const piece of pieces(secret)) this.#add(piece);
    for (const phrase of phrases) if (longEnough(phrase)) this.#add(phrase);
  }

  /** How many shapes are looked for. */
  get size(): number {
    return this.#folded.size + this.#exact.size;
  }

  /** The place in `text` where a secret shows, with what is around it; undefined: nowhere. */
  find(text: string): string | undefined {
    const plain = unescaped(text);
    return (
      found(text, this.#exact) ?? found(text.toLowerCase(), this.#folded) ?? found(plain.toLowerCase(), this.#folded)
    );
  }

  #add(needle: string): void {
    const bytes = Buffer.from(needle);
    this.#folded.add(needle.toLowerCase()).add(bytes.toString('hex'));
    for (const shift of [0, 1, 2]) {
      const inside = base64Inside(bytes, shift);
      this.#exact.add(inside).add(inside.replaceAll('+', '-').replaceAll('/', '_'));
    }
  }
}

function longEnough(needle: string): boolean {
  if (needle.length >= PIECE) return true;
  throw new Error(`${needle.length} characters could be found by chance`);
}

/** Pieces side by side, and the last one: whatever has two pieces' length of the secret has one of them. */
function pieces(secret: string): string[] {
  longEnough(secret);
  const starts = Array.from({ length: Math.floor(secret.length / PIECE) }, (_, i) => i * PIECE);
  return [...starts, secret.length - PIECE].map((start) => secret.slice(start, start + PIECE));
}

/** What base64 makes of these bytes alone, wherever they stand: the characters that they share with others are left out. */
function base64Inside(bytes: Buffer, shift: number): string {
  const text = Buffer.concat([Buffer.alloc(shift), bytes]).toString('base64');
  return text.slice(Math.ceil((shift * 8) / 6), Math.floor(((shift + bytes.length) * 8) / 6));
}

function unescaped(text: string): string {
  return text
    .replaceAll('\0', '')
    .replace(/\\u([0-9a-f]{4})|%([0-9a-f]{2})/gi, (_, unit?: string, byte?: string) =>
      String.fromCharCode(Number.parseInt(unit ?? byte ?? '', 16)),
    );
}

function found(text: string, needles: ReadonlySet<string>): string | undefined {
  for (const needle of needles) {
    const at = text.indexOf(needle);
    if (at >= 0) return text.slice(Math.max(0, at - AROUND), at + needle.length + AROUND);
  }
  return undefined;
}
