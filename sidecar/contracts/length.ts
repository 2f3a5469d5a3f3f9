/**
 * Whether a text has at most `limit` code points. Their number lies between half the UTF-16 length and all of it, so most
 * texts are decided without a look at their characters.
 */
export function hasAtMost(text: string, limit: number): boolean {
  if (text.length <= limit) return true;
  if (text.length > 2 * limit) return false;
  let points = text.length;
  for (let i = 0; i + 1 < text.length; i++) {
    if ((text.charCodeAt(i) & 0xfc00) === 0xd800 && (text.charCodeAt(i + 1) & 0xfc00) === 0xdc00) {
      points--;
      i++;
    }
  }
  return points <= limit;
}
