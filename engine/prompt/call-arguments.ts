/**
 * The arguments of earlier calls as JSON values, for templates that write them out themselves. Callers send them as text of
 * up to 16,777,216 characters: counted before they are parsed, since a value takes ten times the memory of its text.
 */

/** How deep arrays and objects may nest in one call's arguments: as deep as in a request. */
export const MAX_ARGUMENT_NESTING = 64;

/** Values in the arguments of all calls of a conversation: 32 in each of 4,096 messages, which a template writes in a second. */
export const MAX_ARGUMENT_VALUES = 131_072;

/** Thrown for arguments past either bound. */
export class OversizedArguments extends Error {}

/** The arguments of one conversation. */
export class CallArguments {
  #values = 0;

  /** Throws OversizedArguments past the bounds, a SyntaxError where the text is not JSON. Empty text is no arguments. */
  parse(text: string): unknown {
    // Callers send no text at all for a call without arguments.
    if (text.trim() === '') return {};
    this.#count(text);
    return JSON.parse(text);
  }

  /** Counts arrays, objects and the commas between values. What it counts in text that is not JSON does not matter. */
  #count(text: string): void {
    let open = 0;
    for (let at = 0; at < text.length; at++) {
      switch (text.charCodeAt(at)) {
        case 0x22: // "
          at = endOfString(text, at);
          break;
        case 0x5b: // [
        case 0x7b: // {
          open++;
          this.#values++;
          break;
        case 0x5d: // ]
        case 0x7d: // }
          open--;
          break;
        case 0x2c: // ,
          this.#values++;
          break;
        default:
      }
      if (open > MAX_ARGUMENT_NESTING || this.#values > MAX_ARGUMENT_VALUES) throw new OversizedArguments();
    }
  }
}

/** Index of the closing quote of the string that opens at `at`; the text's length when there is none. */
function endOfString(text: string, at: number): number {
  for (let end = at + 1; end < text.length; end++) {
    const unit = text.charCodeAt(end);
    if (unit === 0x22) return end;
    if (unit === 0x5c) end++;
  }
  return text.length;
}
