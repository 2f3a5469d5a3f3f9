/** Printable ASCII: other bytes cannot be in a header. */
const KEY = /^[\x21-\x7e]{1,4096}$/;

/** The key of an external server in the text of its file: the first line. Undefined if that is none. */
export function serverKey(text: string): string | undefined {
  const key = (text.split('\n', 1)[0] ?? '').trim();
  return KEY.test(key) ? key : undefined;
}
