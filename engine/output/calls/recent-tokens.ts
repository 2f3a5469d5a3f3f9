/** The least number of bytes kept: more than a call's text before its arguments. */
const KEPT_BYTES = 1024;

/** The last tokens of a reply with their bytes, to find the tokens that some text came from. */
export class RecentTokens {
  readonly #kept: { readonly token: number; readonly bytes: Uint8Array }[] = [];
  #bytes = 0;

  push(token: number, bytes: Uint8Array): void {
    this.#kept.push({ token, bytes });
    this.#bytes += bytes.length;
    for (let first = this.#kept[0]; first && this.#bytes - first.bytes.length >= KEPT_BYTES; first = this.#kept[0]) {
      this.#bytes -= first.bytes.length;
      this.#kept.shift();
    }
  }

  /** The tokens from the text's last occurrence on, and the text of the first one before it; undefined: not found. */
  since(text: string): { readonly tokens: readonly number[]; readonly before: string } | undefined {
    const begin = Buffer.concat(this.#kept.map(({ bytes }) => bytes)).lastIndexOf(text);
    if (begin < 0) return undefined;
    let end = 0;
    const first = this.#kept.findIndex(({ bytes }) => (end += bytes.length) > begin);
    const kept = this.#kept.slice(first);
    const bytes = kept[0]?.bytes ?? new Uint8Array(0);
    const before = Buffer.from(bytes.subarray(0, begin - (end - bytes.length))).toString();
    return { tokens: kept.map(({ token }) => token), before };
  }
}
