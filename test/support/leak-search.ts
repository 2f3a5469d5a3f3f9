/**
 * Searches texts for secrets in every form in which they may leave: whole or cut, in another case, with the escapes of
 * JSON and of URLs, with zero bytes between, in hexadecimal, in base64.
 */

/** A secret is searched in pieces of so many characters, so that a cut one is found too. */
export const PIECE = 12;

/** Characters shown on each side of a finding. */
const AROUND = 40;

/** The needles, made once for any number of texts. */
export class LeakSearch {
  /** In lower case. */
  readonly #folded = new Set<string>();
  /** Where case matters. */
  readonly #exact = new Set<string>();

  /**
   * `secrets` are searched in pieces, `phrases` whole: a piece of plain words could occur by chance. Throws on texts
   * that are too short to be distinguished from chance.
   */
  constructor(secrets: Iterable<string>, phrases: Iterable<string> = []) {
    for (const secret of secrets) for (const piece of pieces(secret)) this.#add(piece);
    for (const phrase of phrases) if (longEnough(phrase)) this.#add(phrase);
  }

  /** How many forms are searched. */
  get size(): number {
    return this.#folded.size + this.#exact.size;
  }

  /** The place in `text` where a secret is, with the text around it; undefined: nowhere. */
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

/** Adjacent pieces, and the last one: a part of the secret of two pieces’ length contains one of them. */
function pieces(secret: string): string[] {
  longEnough(secret);
  const starts = Array.from({ length: Math.floor(secret.length / PIECE) }, (_, i) => i * PIECE);
  return [...starts, secret.length - PIECE].map((start) => secret.slice(start, start + PIECE));
}

/** The base64 of these bytes alone, at any offset: characters shared with neighbouring bytes are left out. */
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
